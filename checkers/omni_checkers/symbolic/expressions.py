"""The value of expressions along one path."""

import ast
import builtins
import re
from collections.abc import Iterable, Iterator, Mapping

from omni_checkers.symbolic import library, tensors
from omni_checkers.symbolic.calls import Calls
from omni_checkers.symbolic.program import Module
from omni_checkers.symbolic.signals import Raised
from omni_checkers.symbolic.tensors import Tiny
from omni_checkers.symbolic.values import (
    Class,
    Defaults,
    Function,
    Opaque,
    Partial,
    Record,
    Scope,
    Symbol,
    Value,
    hashable,
    is_key,
    is_plain,
    show,
)

# What tells the value of each type of expressions.
_HANDLERS = {kind: f"_of_{kind.__name__.lower()}" for kind in ast.expr.__subclasses__()}


class Expressions(Calls):
    """Evaluates expressions; what a statement does to the world is the Evaluator's."""

    def value(self, node: ast.expr) -> Value:
        """The value of an expression; Opaque for one that is not understood."""
        handler = getattr(self, _HANDLERS.get(type(node), ""), None)
        return handler(node) if handler is not None else Opaque(ast.unparse(node))

    # leaves

    def _of_constant(self, node: ast.Constant) -> Value:
        return node.value

    def _of_name(self, node: ast.Name) -> Value:
        scope = self.scope.find(node.id)
        if scope is not None:
            return scope.names[node.id]
        if node.id == "__name__":
            return self.module.name
        if node.id == "__package__":
            return self.module.package
        return Symbol(f"builtins.{node.id}") if hasattr(builtins, node.id) else Opaque(node.id)

    def _of_attribute(self, node: ast.Attribute) -> Value:
        return self.attribute(self.value(node.value), node.attr, node.lineno)

    def _of_tuple(self, node: ast.Tuple) -> Value:
        return tuple(self.elements(node.elts))

    def _of_list(self, node: ast.List) -> Value:
        return list(self.elements(node.elts))

    def _of_set(self, node: ast.Set) -> Value:
        return {hashable(item) for item in self.elements(node.elts)}

    def _of_dict(self, node: ast.Dict) -> Value:
        made: dict[Value, Value] = {}
        for key, value in zip(node.keys, node.values, strict=True):
            if key is None:
                inner = self.value(value)
                made.update(inner if isinstance(inner, dict) else {hashable(Opaque(f"**{show(inner)}")): inner})
            else:
                made[hashable(self.value(key))] = self.value(value)
        return made

    def _of_joinedstr(self, node: ast.JoinedStr) -> Value:
        parts = [self.value(part.value if isinstance(part, ast.FormattedValue) else part) for part in node.values]
        plain = all(is_plain(part) for part in parts)
        simple = all(
            not isinstance(part, ast.FormattedValue) or (part.format_spec is None and part.conversion == -1)
            for part in node.values
        )
        if plain and simple:
            return "".join(str(part) for part in parts)
        return Opaque("".join(part if isinstance(part, str) else f"{{{show(part)}}}" for part in parts))

    def _of_lambda(self, node: ast.Lambda) -> Value:
        return Function(self.module, node, self.scope)

    def _of_starred(self, node: ast.Starred) -> Value:
        return self.value(node.value)

    def _of_namedexpr(self, node: ast.NamedExpr) -> Value:
        value = self.value(node.value)
        self.scope.names[node.target.id] = value
        return value

    # operators

    def _of_binop(self, node: ast.BinOp) -> Value:
        return self.binary(node.op, self.value(node.left), self.value(node.right))

    def binary(self, operator: ast.operator, left: Value, right: Value) -> Value:
        """The value of `left <operator> right`; Opaque where it is not known."""
        known = library.binary(operator, left, right)
        return (
            known if known is not library.UNKNOWN else Opaque(f"{show(left)} {type(operator).__name__} {show(right)}")
        )

    def _of_unaryop(self, node: ast.UnaryOp) -> Value:
        value = self.value(node.operand)
        if isinstance(node.op, ast.Not):
            return not self.truth(value)
        if isinstance(node.op, ast.USub) and isinstance(value, (int, float)):
            return -value
        return Opaque(f"{type(node.op).__name__} {show(value)}")

    def _of_boolop(self, node: ast.BoolOp) -> Value:
        value: Value = None
        for item in node.values:
            value = self.value(item)
            if item is not node.values[-1] and self.truth(value) == isinstance(node.op, ast.Or):
                return value
        return value

    def _of_ifexp(self, node: ast.IfExp) -> Value:
        return self.value(node.body if self.truth(self.value(node.test)) else node.orelse)

    def _of_compare(self, node: ast.Compare) -> Value:
        self.line = node.lineno
        left = self.value(node.left)
        for operator, comparator in zip(node.ops, node.comparators, strict=True):
            right = self.value(comparator)
            result = self.compare(operator, left, right)
            if len(node.ops) == 1:
                return result
            if not self.truth(result):
                return False
            left = right
        return True

    def compare(self, operator: ast.cmpop, left: Value, right: Value) -> Value:
        """The value of `left <operator> right` for comparisons; Opaque where it is not known.

        Raises:
            Raised: it looks for something in None.
        """
        if right is None and isinstance(operator, (ast.In, ast.NotIn)):
            raise Raised("TypeError: argument of type 'NoneType' is not iterable", self.line, self.module)
        known = library.compare(operator, left, right)
        if known is not library.UNKNOWN:
            return known
        negative = {"NotIn": "In", "NotEq": "Eq", "IsNot": "Is"}
        name = type(operator).__name__
        if name in negative:
            return not self.truth(Opaque(f"{show(left)} {negative[name]} {show(right)}"))
        return Opaque(f"{show(left)} {name} {show(right)}")

    def truth(self, value: Value) -> bool:
        """Whether a value is true; the oracle says where it is not known."""
        if is_plain(value) or isinstance(value, (list, tuple, dict, set, frozenset)):
            return bool(value)
        if isinstance(value, (Function, Class, Module, Record, Partial, re.Pattern, re.Match)):
            return True
        if isinstance(value, Symbol) and value.name == "typing.TYPE_CHECKING":
            return False
        return self.oracle.choose(show(value), 2) == 0

    def may_hold(self, value: Value) -> bool:
        """Whether a filter may let an element pass; no path of its own for one that is not known."""
        return not isinstance(value, (type(None), bool, int, str)) or bool(value)

    # containers

    def elements(self, nodes: Iterable[ast.expr]) -> Iterator[Value]:
        """The values of the items of a display or of arguments; starred ones are spread."""
        for node in nodes:
            if isinstance(node, ast.Starred):
                yield from self.items(self.value(node))
            else:
                yield self.value(node)

    def items(self, value: Value) -> list[Value]:
        """The elements of an iterable; one unknown element for one that is not known."""
        if isinstance(value, (list, tuple, dict, range, str)):
            return list(value)
        if isinstance(value, (set, frozenset)):
            return sorted(value, key=show)
        return [Opaque(f"item of {show(value)}")]

    def unpack(self, targets: list[ast.expr], value: Value) -> None:
        """Assigns the elements of a value to several targets; they are unknown where the numbers do not fit."""
        values = self.items(value) if isinstance(value, (list, tuple)) else []
        for index, target in enumerate(targets):
            known = len(values) == len(targets) and not isinstance(target, ast.Starred)
            self.store(target, values[index] if known else Opaque(f"{show(value)}[{index}]"))

    def _of_subscript(self, node: ast.Subscript) -> Value:
        if isinstance(node.slice, ast.Slice):
            base = self.value(node.value)
            bounds = [self.value(b) if b else None for b in (node.slice.lower, node.slice.upper, node.slice.step)]
            if isinstance(base, (list, tuple, str)) and all(b is None or isinstance(b, int) for b in bounds):
                return base[slice(*bounds)]
            return Opaque(ast.unparse(node))
        return self.item(self.value(node.value), self.value(node.slice), node.lineno)

    def item(self, container: Value, key: Value, line: int) -> Value:
        """container[key]; any of a dict's values where the key is not known."""
        if isinstance(container, Tiny) and isinstance(key, int):
            return library.tensor(lambda: tensors.select(container, key))
        if isinstance(container, dict):
            key = hashable(key)
            if key in container:
                return container[key]
            if isinstance(container, Defaults):
                container[key] = self.call(container.factory, [], {}, None)
                return container[key]
            if is_key(key):
                raise Raised(f"KeyError: {key!r}", line, self.module)
            if container:
                values = list(container.values())
                return values[self.oracle.choose(f"{show(key)} in {show(list(container))}", len(values))]
        if isinstance(container, (list, tuple, str)) and isinstance(key, int):
            if -len(container) <= key < len(container):
                return container[key]
            raise Raised(f"IndexError: {key}", line, self.module)
        return Opaque(f"{show(container)}[{show(key)}]")

    def _of_listcomp(self, node: ast.ListComp) -> Value:
        return list(self.comprehend(node.generators, node.elt))

    _of_generatorexp = _of_listcomp

    def _of_setcomp(self, node: ast.SetComp) -> Value:
        return {hashable(item) for item in self.comprehend(node.generators, node.elt)}

    def _of_dictcomp(self, node: ast.DictComp) -> Value:
        pair = ast.Tuple([node.key, node.value], ast.Load())
        return {hashable(key): value for key, value in self.comprehend(node.generators, pair)}

    def comprehend(self, generators: list[ast.comprehension], element: ast.expr) -> Iterator[Value]:
        """The values of a comprehension, in order, in a scope of its own; no generators give the element once."""
        if not generators:
            yield self.value(element)
            return
        first, outer = generators[0], self.scope
        items = self.items(self.value(first.iter))
        self.scope = Scope(outer=outer)
        try:
            for item in items:
                self.step()
                self.store(first.target, item)
                if all(self.may_hold(self.value(test)) for test in first.ifs):
                    yield from list(self.comprehend(generators[1:], element))
        finally:
            self.scope = outer

    # calls

    def _of_call(self, node: ast.Call) -> Value:
        function = self.value(node.func)
        args = list(self.elements(node.args))
        kwargs: dict[str, Value] = {}
        for keyword in node.keywords:
            value = self.value(keyword.value)
            if keyword.arg is not None:
                kwargs[keyword.arg] = value
            elif isinstance(value, Mapping):
                kwargs.update({str(key): item for key, item in value.items()})
        return self.call(function, args, kwargs, node)
