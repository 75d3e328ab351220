"""Evaluates code with unknown parts: an unknown is a value of its own, and the path continues."""

import ast
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from omni_checkers.symbolic.values import Class, Function, Opaque, Raised, Scope, Value, hashable, show
from omni_kit.pysource.eval import Exhausted, Frame, Unsupported
from omni_kit.pysource.eval.python import OPERATORS
from omni_kit.pysource.signatures import double_star, named, positional, star


class PathFrame(Frame):
    """Goes through code along one path; it ends only where the code raises, or the budget is spent.

    Attributes:
        home: the module.
    """

    def framed(self, path: Path, module: str, scope: Scope, home: Any) -> "PathFrame":
        """Return a frame for other code, of the same path."""
        return PathFrame(self.domain, path, module, scope, home)

    def run(self, body: Sequence[ast.stmt]) -> None:
        """Evaluate statements; those with unknown effects are skipped."""
        for node in body:
            try:
                super().run([node])
            except (Raised, Exhausted):
                raise
            except Unsupported:
                continue

    def value(self, node: ast.expr) -> Value:
        """Return the value of an expression; Opaque if it is unknown."""
        try:
            return super().value(node)
        except (Raised, Exhausted, RecursionError):
            raise
        except (KeyError, IndexError) as error:
            raise Raised(f"{type(error).__name__}: {error}", self) from error
        except Exception:
            return Opaque(ast.unparse(node))

    def key(self, value: Value) -> Value:
        """Return a value as a key of a dict, or in a set."""
        return hashable(value)

    def mapping(self, value: Value) -> dict[Any, Any]:
        """Return the items of `**value`."""
        return value if isinstance(value, dict) else {hashable(Opaque(f"**{show(value)}")): value}

    def keywords(self, node: ast.Call) -> dict[str, Value]:
        """Return the named arguments of a call; of `**` only those that are known."""
        found: dict[str, Value] = {}
        for keyword in node.keywords:
            value = self.value(keyword.value)
            if keyword.arg is not None:
                found[keyword.arg] = value
            elif isinstance(value, Mapping):
                found |= {str(key): item for key, item in value.items()}
        return found

    def joined(self, parts: Sequence[Value]) -> Value:
        """Return a text of values; Opaque where one is not known."""
        if all(isinstance(part, str) for part in parts):
            return "".join(parts)
        return Opaque("".join(part if isinstance(part, str) else f"{{{show(part)}}}" for part in parts))

    def attribute(self, base: Value, name: str) -> Value:
        """Return an attribute of a value, which may be stored on anything."""
        return self.domain.attribute(base, name, self)

    def operation(self, op: ast.AST, operands: list[Value], node: ast.AST) -> Value:
        """Return the result of an operator; items of a collection may be unknown."""
        self.at = node
        return self.domain.operation(OPERATORS[type(op)], operands, self)

    def may_hold(self, node: ast.expr) -> bool:
        """Return whether a filter lets an item pass, or an assertion holds.

        No path of its own where that is not known.
        """
        value = self.value(node)
        return not isinstance(value, (type(None), bool, int, str)) or bool(value)

    def of_generatorexp(self, node: ast.GeneratorExp) -> Value:
        """Return the items of a generator as a list: who takes them is not always known."""
        return self.of_listcomp(ast.ListComp(node.elt, node.generators))

    def items_of(self, value: Value) -> Iterable[Value]:
        """Return the items of a value; those of a set in an order that is the same in every run."""
        return sorted(value, key=show) if isinstance(value, (set, frozenset)) else super().items_of(value)

    def bind(self, target: ast.expr, value: Value) -> None:
        """Give a value to targets; of parts that do not fit, each is unknown."""
        if not isinstance(target, (ast.Tuple, ast.List)):
            return super().bind(target, value)
        with suppress(Unsupported):
            return super().bind(target, value)
        for place, inner in enumerate(target.elts):
            part = inner.value if isinstance(inner, ast.Starred) else inner
            self.bind(part, Opaque(f"{show(value)}[{place}]"))
        return None

    def bound(self, function: Function, arguments: list[Value], keywords: dict[str, Value]) -> dict[str, Value]:
        """Parameter -> value; a parameter that is not given and has no default is unknown."""
        taken = function.signature
        own, placed, rest, more = named(taken), positional(taken), star(taken), double_star(taken)
        found = {name: Opaque(f"<{name}>") for name in own} | dict(function.defaults)
        found |= dict(zip(placed, arguments, strict=False))
        if rest is not None:
            found[rest] = tuple(arguments[len(placed) :])
        if more is not None:
            found[more] = {name: value for name, value in keywords.items() if name not in own}
        return found | {name: value for name, value in keywords.items() if name in own}

    def written_class(self, node: ast.ClassDef) -> Value:
        """Return a class; its body is gone through as far as somebody asks for attributes."""
        return Class(self.home, node, node.name)

    def run_return(self, node: ast.Return) -> None:
        """Give a function's value; the last one says where."""
        self.domain.returned(node, self)  # type: ignore[attr-defined]
        super().run_return(node)
