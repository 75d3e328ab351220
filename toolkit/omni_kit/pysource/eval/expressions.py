"""The values of expressions."""

import ast
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any

from omni_kit.pysource.eval import python
from omni_kit.pysource.eval.domain import Domain
from omni_kit.pysource.eval.values import (
    VIEWS,
    Function,
    Iterated,
    Native,
    Partial,
    Scope,
    Unsupported,
    bounded,
    is_iterable,
    is_plain,
    iterated,
    plain,
)


@cache
def handler(prefix: str, kind: str) -> str:
    """Return the name of the method for a type of nodes; a domain may have types of its own."""
    return f"{prefix}_{kind.lower()}"


class Expressions(ABC):
    """Evaluates expressions in a scope.

    Attributes:
        at: the expression or statement whose operation is being asked of the domain.
    """

    domain: Domain
    scope: Scope
    at: ast.AST

    @abstractmethod
    def written(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> Function:
        """Return the function that a definition makes."""

    @abstractmethod
    def bind(self, target: ast.expr, value: Any) -> None:
        """Give a value to what an assignment or a loop names."""

    @abstractmethod
    def inner(self) -> "Expressions":
        """Return an evaluator with a scope of its own, as a comprehension has it."""

    @abstractmethod
    def located(self, error: Exception, node: ast.AST) -> Unsupported:
        """Return an error with the place where it came up, unless it has one already."""

    def value(self, node: ast.expr) -> Any:
        """Return the value of an expression.

        Raises:
            Unsupported: that cannot be determined.
        """
        self.domain.spend()
        reader = getattr(self, handler("of", type(node).__name__), None)
        if reader is None:
            raise Unsupported(f"contains an unsupported expression ({type(node).__name__})")
        return reader(node)

    def truth(self, node: ast.expr) -> bool:
        """Return whether an expression is true."""
        return self.is_true(self.value(node))

    def decided(self, node: ast.expr) -> bool | None:
        """Return whether a condition holds, from its known parts; None if they do not decide."""
        match node:
            case ast.UnaryOp(op=ast.Not()):
                found = self.decided(node.operand)
                return None if found is None else not found
            case ast.BoolOp():
                parts, decisive = [self.decided(part) for part in node.values], isinstance(node.op, ast.Or)
                return decisive if decisive in parts else None if None in parts else not decisive
        try:
            return self.truth(node)
        except Exception:
            return None

    def may_hold(self, node: ast.expr) -> bool:
        """Return whether a filter lets an item pass, or an assertion holds."""
        return self.truth(node)

    def is_true(self, value: Any) -> bool:
        """Return whether a value is true."""
        if isinstance(value, Iterated):
            return True
        return bool(value) if is_plain(value) or isinstance(value, VIEWS) else self.domain.truth(value, self)

    def items(self, node: ast.expr) -> Iterable[Any]:
        """Return the items of an iterable."""
        return self.items_of(self.value(node))

    def items_of(self, value: Any) -> Iterable[Any]:
        """Return the items of a value."""
        if is_iterable(value):
            return iterated(value) if isinstance(value, (Iterated, list, dict, set, *VIEWS)) else list(value)
        if is_plain(value):
            raise Unsupported(f"goes through a {type(value).__name__}")
        return self.domain.items(value, self)

    def of_constant(self, node: ast.Constant) -> Any:
        """Return a literal."""
        return bounded(node.value)

    def of_name(self, node: ast.Name) -> Any:
        """Return a name of the file, or a built-in that is known."""
        holder = self.scope.holder(node.id)
        if holder is not None:
            return readable(holder.names[node.id])
        try:
            return self.domain.name(node.id, self)
        except Unsupported:
            if node.id not in python.BUILTINS:
                raise
            return Native(python.BUILTINS[node.id])

    def of_attribute(self, node: ast.Attribute) -> Any:
        """An attribute of whatever stands before the dot."""
        base = self.value(node.value)
        self.at = node
        return self.attribute(base, node.attr)

    def attribute(self, base: Any, name: str) -> Any:
        """Return an attribute of a value."""
        if isinstance(base, Function):
            return self.member(base, name)
        found = python.method(base, name)
        return self.domain.attribute(base, name, self) if found is None else found

    def member(self, owner: Function, name: str) -> Any:
        """Return a class's own or inherited member, or the name of a definition."""
        if name in {"__name__", "__module__"} and owner.__name__ != "<lambda>":
            return getattr(owner, name)
        if name in owner.members:
            return readable(owner.members[name])
        base = owner.bases[0] if len(owner.bases) == 1 else None
        if isinstance(base, Function):
            return self.member(base, name)
        raise Unsupported(f"uses {owner.__name__}.{name}")

    def of_subscript(self, node: ast.Subscript) -> Any:
        """Return an item, or a slice."""
        base, key = self.value(node.value), self.value(node.slice)
        self.at = node
        if type(base) not in {str, list, tuple, dict, range, bytes} or not is_plain(key):
            return self.domain.item(base, key, self)
        return base[key if isinstance(key, slice) else self.key(key)]

    def of_slice(self, node: ast.Slice) -> slice:
        """Return a slice."""
        return slice(*(self.value(part) if part else None for part in (node.lower, node.upper, node.step)))

    def of_tuple(self, node: ast.Tuple) -> Any:
        """Return a tuple."""
        return tuple(self.elements(node.elts))

    def of_list(self, node: ast.List) -> Any:
        """Return a list."""
        return self.elements(node.elts)

    def of_set(self, node: ast.Set) -> Any:
        """Return a set."""
        return {self.key(one) for one in self.elements(node.elts)}

    def key(self, value: Any) -> Any:
        """Return a value as a key of a dict, or in a set."""
        return plain(value)

    def of_dict(self, node: ast.Dict) -> Any:
        """Return a dict."""
        found: dict[Any, Any] = {}
        for key, value in zip(node.keys, node.values, strict=True):
            if key is not None:
                found[self.key(self.value(key))] = self.value(value)
            else:
                found.update(self.mapping(self.value(value)))
        return bounded(found)

    def mapping(self, value: Any) -> dict[Any, Any]:
        """Return the items of `**value`."""
        if not isinstance(value, dict):
            raise Unsupported("applies ** to a non-dict")
        return value

    def elements(self, nodes: Sequence[ast.expr]) -> list[Any]:
        """Return the values of several expressions; starred ones are unpacked."""
        found: list[Any] = []
        for node in nodes:
            if isinstance(node, ast.Starred):
                found += self.domain.unpacked(self.value(node.value), 1, self)
            else:
                found.append(self.value(node))
        bounded(found)
        return found

    def of_binop(self, node: ast.BinOp) -> Any:
        """Return an operation of two values."""
        return self.operation(node.op, [self.value(node.left), self.value(node.right)], node)

    def operation(self, op: ast.AST, operands: list[Any], node: ast.AST) -> Any:
        """Return the result of an operator."""
        self.at = node
        name = python.OPERATORS[type(op)]
        contained = name in {"in", "not in"} and isinstance(operands[1], VIEWS)
        if all(map(is_plain, operands[:1] if contained else operands)):
            return python.operation(name, *operands)
        return self.domain.operation(name, operands, self)

    def of_unaryop(self, node: ast.UnaryOp) -> Any:
        """Return a sign, or `not`."""
        operand = self.value(node.operand)
        if isinstance(node.op, ast.Not):
            return not self.is_true(operand)
        return self.operation(node.op, [operand], node)

    def of_boolop(self, node: ast.BoolOp) -> Any:
        """`and` and `or`, of which the parts behind the decisive one are not looked at."""
        value: Any = None
        for part in node.values:
            value = self.value(part)
            if part is not node.values[-1] and self.is_true(value) == isinstance(node.op, ast.Or):
                return value
        return value

    def of_compare(self, node: ast.Compare) -> Any:
        """Comparisons, each of which has to hold."""
        left, holds = self.value(node.left), None
        for op, comparator in zip(node.ops, node.comparators, strict=True):
            right = self.value(comparator)
            holds = self.operation(op, [left, right], node)
            if comparator is not node.comparators[-1] and not self.is_true(holds):
                return holds
            left = right
        return holds

    def of_ifexp(self, node: ast.IfExp) -> Any:
        """Return one of two values."""
        return self.value(node.body if self.truth(node.test) else node.orelse)

    def of_namedexpr(self, node: ast.NamedExpr) -> Any:
        """Return a value that gets a name."""
        value = self.value(node.value)
        self.scope.assigned().names[node.target.id] = value
        return value

    def of_joinedstr(self, node: ast.JoinedStr) -> Any:
        """Return a text with values in it."""
        parts = []
        for part in node.values:
            value = self.value(part.value if isinstance(part, ast.FormattedValue) else part)
            if isinstance(part, ast.FormattedValue) and is_plain(value):
                style = self.value(part.format_spec) if part.format_spec is not None else ""
                value = python.formatted(value, part.conversion, style)
            parts.append(value)
        return self.joined(parts)

    def joined(self, parts: Sequence[Any]) -> Any:
        """Return a text of values, some of which may not be plain."""
        other = [part for part in parts if not is_plain(part)]
        return self.domain.formatted(other[0], self) if other else bounded("".join(parts))

    def of_lambda(self, node: ast.Lambda) -> Any:
        """Return a function without a name."""
        return self.written(node)

    def of_call(self, node: ast.Call) -> Any:
        """Return a call; its arguments come first."""
        function = self.value(node.func)
        arguments = self.elements(node.args)
        keywords = self.keywords(node)
        self.at = node
        if not isinstance(function, (Native, Function, Partial)):
            arguments = [python.plain_items(one) for one in arguments]
            keywords = {name: python.plain_items(one) for name, one in keywords.items()}
        return self.domain.call(function, arguments, keywords, self, node)

    def keywords(self, node: ast.Call) -> dict[str, Any]:
        """Return the named arguments of a call."""
        found: dict[str, Any] = {}
        for keyword in node.keywords:
            value = self.value(keyword.value)
            more = {keyword.arg: value} if keyword.arg is not None else value
            if not isinstance(more, dict) or not all(isinstance(key, str) for key in more):
                raise Unsupported("unpacks a dict whose keys are not strings")
            if twice := found.keys() & more.keys():
                raise Unsupported(f"gives {min(twice)} twice")
            found |= more
        return found

    def of_listcomp(self, node: ast.ListComp) -> Any:
        """Return a list by comprehension."""
        found: list[Any] = []
        for inside in self.passes(node.generators):
            found.append(inside.value(node.elt))
            bounded(found)
        return found

    def of_generatorexp(self, node: ast.GeneratorExp) -> Any:
        """Return an iterator; each item is evaluated when it is come to."""
        return Iterated(inside.value(node.elt) for inside in self.passes(node.generators))

    def of_setcomp(self, node: ast.SetComp) -> Any:
        """Return a set by comprehension."""
        return {self.key(inside.value(node.elt)) for inside in self.passes(node.generators)}

    def of_dictcomp(self, node: ast.DictComp) -> Any:
        """Return a dict by comprehension."""
        found = {}
        for inside in self.passes(node.generators):
            found[self.key(inside.value(node.key))] = inside.value(node.value)
        return bounded(found)

    def passes(self, generators: Sequence[ast.comprehension]) -> Iterator["Expressions"]:
        """Return the evaluation of each pass through nested loops; the first iterable is evaluated at once, and
        outside.
        """
        if any(one.is_async for one in generators):
            raise Unsupported("waits for something")
        inside = self.inner()
        for node in (part for one in generators for part in ast.walk(one.target) if isinstance(part, ast.Name)):
            if isinstance(node.ctx, ast.Store):
                inside.scope.names[node.id] = Unsupported(f"uses {node.id} before it is assigned")
        return inside.passing(generators, self.items(generators[0].iter))

    def passing(self, generators: Sequence[ast.comprehension], items: Iterable[Any]) -> Iterator["Expressions"]:
        """Goes through the items of the first loop, and for each through the loops in it."""
        first, *rest = generators
        for item in items:
            self.bind(first.target, item)
            if all(self.may_hold(test) for test in first.ifs):
                yield from self.passing(rest, self.items(rest[0].iter)) if rest else [self]


def readable(value: Any) -> Any:
    """Return a value that a name has.

    Raises:
        Unsupported: the name has one that cannot be determined.
    """
    if isinstance(value, Unsupported):
        raise value
    return value
