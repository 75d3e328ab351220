"""A number that a class of the authors works with, in the words of the model's own arguments: nothing is run."""

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from omni_kit.pysource.classes import ClassRef
from omni_kit.pysource.eval import Domain, Frame, Native, Unknown, Unsupported, evaluate
from omni_kit.pysource.eval.python import BUILTINS
from omni_kit.pysource.signatures import defaults, passed, positional, signature
from omni_kit.upstream.repositories.closure import Closure
from omni_kit.upstream.repositories.names import Defined
from omni_kit.upstream.repositories.namespace import Namespace, namespace_of
from omni_kit.upstream.repositories.settings import Settings, settings_of

_OPERATORS = {"add": "+", "sub": "-", "mul": "*", "floordiv": "//", "truediv": "/"}
_SELF = Unknown("self")
_DEEPEST = 24
T = TypeVar("T")


def in_words_of_config(node: ast.expr, home: Defined, function: ast.FunctionDef, closure: Closure) -> str:
    """Return an expression over `config`: `config["num_heads"]` of `self.heads` of a class that is made by the model.

    Args:
        node: in a method of `home`.
        closure: the model with all that it needs; the model is its last.

    Raises:
        Unsupported: it comes from somewhere else, or from several places that differ.
    """
    return _Worded(closure).told(node, home, function)


@dataclass(frozen=True)
class _Words:
    """A value as an expression over `config`."""

    text: str


_WHOLE = _Words("config")


def _text(value: Any) -> str:
    if isinstance(value, int):
        return repr(value)
    if isinstance(value, _Words):
        return value.text
    raise Unsupported(f"uses a {type(value).__name__} for an integer")


class _Worded(Domain):
    """Integers, and what the model's arguments make of them; the home of a frame is a class and its method."""

    def __init__(self, closure: Closure) -> None:
        super().__init__(depth=_DEEPEST)
        self.closure = closure

    @property
    def _settings(self) -> Settings | None:
        root = self.closure.definitions[-1]
        return settings_of(ClassRef(root.source, root.node)) if isinstance(root.node, ast.ClassDef) else None

    @property
    def _namespace(self) -> Namespace | None:
        root = self.closure.definitions[-1]
        return namespace_of(ClassRef(root.source, root.node)) if isinstance(root.node, ast.ClassDef) else None

    def told(self, node: ast.expr, home: Defined, function: ast.FunctionDef) -> str:
        """Return an expression of a method, over `config`."""
        return _text(evaluate(node, self, home=(home, function)))

    def name(self, name: str, frame: Frame) -> Any:
        """See `Domain`: what the method assigns, or what whoever makes the class gives."""
        home, function = frame.home
        if name == _SELF.name:
            return _SELF
        assigned = [value for known, value in _assigned(function) if known == name]
        given = [one.arg for one in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)]
        if assigned and name not in given:
            return evaluate(_only(assigned, name), self, home=frame.home)
        if assigned or name not in given or function.name != "__init__":
            raise Unsupported(f"uses {name}")
        if home is not self.closure.definitions[-1]:
            told = {self.told(value, maker, init) for value, maker, init in self._handed(name, home, function)}
            return _Words(_only(sorted(told), name))
        own = [self._settings.argument] if self._settings is not None else []
        own += self._namespace.arguments if self._namespace is not None and not own else []
        return _WHOLE if name in own else _Words(f'config["{name}"]')

    def attribute(self, base: Any, name: str, frame: Frame) -> Any:
        """See `Domain`."""
        if base == _WHOLE:
            return self._field(name)
        if base != _SELF:
            return super().attribute(base, name, frame)
        home, _ = frame.home
        init = _method(home, "__init__")
        return evaluate(_only(_kept(init, name), name), self, home=(home, init))

    def _field(self, name: str) -> _Words:
        within = self._namespace is not None and name in self._namespace.sections
        return _WHOLE if within else _Words(f'config["{name}"]')

    def item(self, base: Any, key: Any, frame: Frame) -> Any:
        """See `Domain`."""
        if base == _WHOLE and isinstance(key, str):
            return self._field(key)
        return super().item(base, key, frame)

    def operation(self, name: str, operands: list[Any], frame: Frame) -> Any:
        """See `Domain`."""
        if name not in _OPERATORS or len(operands) != 2:
            return super().operation(name, operands, frame)
        left, right = map(_text, operands)
        return _Words(f"({left} {_OPERATORS[name]} {right})")

    def call(self, function: Any, arguments: list[Any], keywords: dict[str, Any], frame: Frame, node: ast.expr) -> Any:
        """See `Domain`."""
        if isinstance(function, Native) and function.function is BUILTINS["int"] and len(arguments) == 1:
            return _Words(f"int({_text(arguments[0])})")
        return super().call(function, arguments, keywords, frame, node)

    def _handed(
        self, name: str, home: Defined, function: ast.FunctionDef
    ) -> Iterator[tuple[ast.expr, Defined, ast.FunctionDef]]:
        """Yield the values that makers of a class pass for an argument, each with the constructor that does so."""
        for maker in self.closure.definitions:
            names = {written for written, other in self.closure.uses[maker].items() if other == home}
            for init, call in _calls(maker, names) if names else ():
                value = _given(call, function).get(name)
                if value is None:
                    raise Unsupported(f"uses {name}")
                yield value, maker, init


def _calls(maker: Defined, names: set[str]) -> Iterator[tuple[ast.FunctionDef, ast.Call]]:
    """Yield the calls by which a class makes another; a class that only inherits or passes it on does not count."""
    mentioned = sum(isinstance(one, ast.Name) and one.id in names for one in ast.walk(maker.node))
    methods = [one for one in getattr(maker.node, "body", []) if isinstance(one, ast.FunctionDef)]
    found = [
        (method, one) for method in methods if method.name == "__init__" for one in ast.walk(method)
        if isinstance(one, ast.Call) and isinstance(one.func, ast.Name) and one.func.id in names
    ]  # fmt: skip
    if len(found) != mentioned:
        raise Unsupported(f"makes {', '.join(sorted(names))} in a place that is not analysed")
    yield from found


def _given(call: ast.Call, function: ast.FunctionDef) -> dict[str, ast.expr]:
    """Return the arguments of a constructor call, defaults included."""
    if any(one.arg is None for one in call.keywords) or any(isinstance(one, ast.Starred) for one in call.args):
        raise Unsupported(f"calls {ast.unparse(call)}")
    taken = signature(function)
    return defaults(taken) | passed(call, positional(taken)[1:])


def _method(home: Defined, name: str) -> ast.FunctionDef:
    body = getattr(home.node, "body", [])
    found = next((one for one in body if isinstance(one, ast.FunctionDef) and one.name == name), None)
    if found is None:
        raise Unsupported(f"uses {home.name}.{name}")
    return found


def _kept(init: ast.FunctionDef, attribute: str) -> list[ast.expr]:
    nodes = [one for one in ast.walk(init) if isinstance(one, ast.Assign | ast.AnnAssign | ast.AugAssign)]
    return [value for one in nodes for target, value in _pairs(one) if _is_own(target, attribute)]


def _assigned(function: ast.FunctionDef) -> Iterator[tuple[str, ast.expr]]:
    for one in ast.walk(function):
        if isinstance(one, ast.Assign | ast.AnnAssign | ast.AugAssign):
            yield from ((target.id, value) for target, value in _pairs(one) if isinstance(target, ast.Name))
        elif isinstance(one, ast.For | ast.comprehension):
            yield from ((target.id, one.iter) for target in ast.walk(one.target) if isinstance(target, ast.Name))


def _pairs(node: ast.Assign | ast.AnnAssign | ast.AugAssign) -> Iterator[tuple[ast.expr, ast.expr]]:
    value = node.value if not isinstance(node, ast.AugAssign) else ast.BinOp(node.target, node.op, node.value)
    for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
        several = target.elts if isinstance(target, ast.Tuple | ast.List) else []
        parts = value.elts if isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(several) else []
        if value is not None:
            yield from zip(several or [target], parts or [value] * max(1, len(several)), strict=True)


def _is_own(node: ast.expr, attribute: str) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == attribute and getattr(node.value, "id", "") == "self"


def _only(found: Sequence[T], name: str) -> T:
    if len(found) != 1:
        raise Unsupported(f"uses {name}")
    return found[0]
