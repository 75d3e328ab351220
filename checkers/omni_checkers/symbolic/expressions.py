"""The value of expressions along one path."""

import ast
import builtins
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from omni_checkers.symbolic import library
from omni_checkers.symbolic.paths import Oracle, TooManyPaths
from omni_checkers.symbolic.program import Module
from omni_checkers.symbolic.signals import Raised
from omni_checkers.symbolic.values import (
    Call,
    Class,
    Function,
    Opaque,
    Partial,
    Record,
    Scope,
    Symbol,
    Value,
    is_plain,
    show,
)

_STEPS = 20_000
_NOWHERE = Module("", Path(), False)


class Expressions:
    """Evaluates expressions; what a statement does to the world is the Evaluator's."""

    def __init__(self, oracle: Oracle) -> None:
        self.oracle = oracle
        self.module = _NOWHERE
        self.scope = Scope()
        self.last_line = 0
        self.last_module: Module | None = None
        self._steps = 0

    def step(self) -> None:
        self._steps += 1
        if self._steps > _STEPS:
            raise TooManyPaths("too many steps")

    def value(self, node: ast.expr) -> Value:
        """The value of an expression; Opaque for one that is not understood."""
        handler = getattr(self, f"of_{type(node).__name__.lower()}", None)
        return handler(node) if handler is not None else Opaque(ast.unparse(node))

    # leaves

    def of_constant(self, node: ast.Constant) -> Value:
        return node.value

    def of_name(self, node: ast.Name) -> Value:
        scope = self.scope.find(node.id)
        if scope is not None:
            return scope.names[node.id]
        if node.id == "__name__":
            return self.module.name
        if node.id == "__package__":
            return self.module.package
        return Symbol(f"builtins.{node.id}") if hasattr(builtins, node.id) else Opaque(node.id)

    def of_attribute(self, node: ast.Attribute) -> Value:
        return self.attribute(self.value(node.value), node.attr, node.lineno)

    def of_tuple(self, node: ast.Tuple) -> Value:
        return tuple(self.elements(node.elts))

    def of_list(self, node: ast.List) -> Value:
        return list(self.elements(node.elts))

    def of_set(self, node: ast.Set) -> Value:
        return {self.hashable(item) for item in self.elements(node.elts)}

    def of_dict(self, node: ast.Dict) -> Value:
        made: dict[Value, Value] = {}
        for key, value in zip(node.keys, node.values, strict=True):
            if key is None:
                inner = self.value(value)
                made.update(inner if isinstance(inner, dict) else {self.hashable(Opaque(f"**{show(inner)}")): inner})
            else:
                made[self.hashable(self.value(key))] = self.value(value)
        return made

    def of_joinedstr(self, node: ast.JoinedStr) -> Value:
        parts = [self.value(part.value if isinstance(part, ast.FormattedValue) else part) for part in node.values]
        plain = all(is_plain(part) for part in parts)
        simple = all(
            not isinstance(part, ast.FormattedValue) or (part.format_spec is None and part.conversion == -1)
            for part in node.values
        )
        if plain and simple:
            return "".join(str(part) for part in parts)
        return Opaque("".join(part if isinstance(part, str) else f"{{{show(part)}}}" for part in parts))

    def of_lambda(self, node: ast.Lambda) -> Value:
        return Function(self.module, node, self.scope)

    def of_starred(self, node: ast.Starred) -> Value:
        return self.value(node.value)

    def of_namedexpr(self, node: ast.NamedExpr) -> Value:
        value = self.value(node.value)
        self.scope.names[node.target.id] = value
        return value

    # operators

    def of_binop(self, node: ast.BinOp) -> Value:
        return self.binary(node.op, self.value(node.left), self.value(node.right))

    def binary(self, operator: ast.operator, left: Value, right: Value) -> Value:
        known = library.binary(operator, left, right)
        return (
            known if known is not library.UNKNOWN else Opaque(f"{show(left)} {type(operator).__name__} {show(right)}")
        )

    def of_unaryop(self, node: ast.UnaryOp) -> Value:
        value = self.value(node.operand)
        if isinstance(node.op, ast.Not):
            return not self.truth(value)
        if isinstance(node.op, ast.USub) and isinstance(value, (int, float)):
            return -value
        return Opaque(f"{type(node.op).__name__} {show(value)}")

    def of_boolop(self, node: ast.BoolOp) -> Value:
        value: Value = None
        for item in node.values:
            value = self.value(item)
            if item is not node.values[-1] and self.truth(value) == isinstance(node.op, ast.Or):
                return value
        return value

    def of_ifexp(self, node: ast.IfExp) -> Value:
        return self.value(node.body if self.truth(self.value(node.test)) else node.orelse)

    def of_compare(self, node: ast.Compare) -> Value:
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
        if isinstance(value, (Function, Class, Module, Record, Partial)):
            return True
        if isinstance(value, Symbol) and value.name == "typing.TYPE_CHECKING":
            return False
        return self.oracle.choose(show(value), 2) == 0

    def may_hold(self, value: Value) -> bool:
        """Whether a filter may let an element pass; no path of its own for one that is not known."""
        return not isinstance(value, (type(None), bool, int, str)) or bool(value)

    # containers

    def elements(self, nodes: Iterable[ast.expr]) -> Iterator[Value]:
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
        values = self.items(value) if isinstance(value, (list, tuple)) else []
        for index, target in enumerate(targets):
            known = len(values) == len(targets) and not isinstance(target, ast.Starred)
            self.store(target, values[index] if known else Opaque(f"{show(value)}[{index}]"))

    def of_subscript(self, node: ast.Subscript) -> Value:
        if isinstance(node.slice, ast.Slice):
            base = self.value(node.value)
            bounds = [self.value(b) if b else None for b in (node.slice.lower, node.slice.upper, node.slice.step)]
            if isinstance(base, (list, tuple, str)) and all(b is None or isinstance(b, int) for b in bounds):
                return base[slice(*bounds)]
            return Opaque(ast.unparse(node))
        return self.item(self.value(node.value), self.value(node.slice), node.lineno)

    def item(self, container: Value, key: Value, line: int) -> Value:
        """container[key]; any of a dict's values where the key is not known."""
        if isinstance(container, dict):
            key = self.hashable(key)
            if key in container:
                return container[key]
            if is_plain(key):
                raise Raised(f"KeyError: {key!r}", line, self.module)
            if container:
                values = list(container.values())
                return values[self.oracle.choose(f"{show(key)} in {show(list(container))}", len(values))]
        if isinstance(container, (list, tuple, str)) and isinstance(key, int):
            if -len(container) <= key < len(container):
                return container[key]
            raise Raised(f"IndexError: {key}", line, self.module)
        return Opaque(f"{show(container)}[{show(key)}]")

    def hashable(self, key: Value) -> Any:
        return key if is_plain(key) or isinstance(key, (Opaque, Symbol, Class, tuple)) else Opaque(show(key))

    def of_listcomp(self, node: ast.ListComp) -> Value:
        return list(self.comprehend(node.generators, node.elt))

    of_generatorexp = of_listcomp

    def of_setcomp(self, node: ast.SetComp) -> Value:
        return {self.hashable(item) for item in self.comprehend(node.generators, node.elt)}

    def of_dictcomp(self, node: ast.DictComp) -> Value:
        pair = ast.Tuple([node.key, node.value], ast.Load())
        return {self.hashable(key): value for key, value in self.comprehend(node.generators, pair)}

    def comprehend(self, generators: list[ast.comprehension], element: ast.expr) -> Iterator[Value]:
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

    # attributes and calls

    def attribute(self, owner: Value, name: str, line: int) -> Value:
        """owner.name, as stored on this path, as defined, or as a library's."""
        attached = self.attached(owner, name)
        if attached is not library.UNKNOWN:
            return attached
        if isinstance(owner, Module):
            return self.module_attribute(owner, name)
        if isinstance(owner, Symbol):
            return Symbol(f"{owner.name}.{name}")
        if isinstance(owner, Record):
            try:
                return owner.attribute(name)
            except KeyError:
                raise Raised(f"AttributeError: {owner.name} has no attribute '{name}'", line, self.module) from None
        if isinstance(owner, Class):
            return self.class_attribute(owner, name)
        if isinstance(owner, Call) and name in owner.kwargs:
            return owner.kwargs[name]
        if isinstance(owner, (str, list, dict, tuple, set, frozenset, Call)):
            return Partial(library.METHOD, (owner, name))
        return Opaque(f"{show(owner)}.{name}")

    def attached(self, owner: Value, name: str) -> Value:
        key = owner if isinstance(owner, (Class, Symbol, Module)) else show(owner)
        found = self.attributes.get((key, name))
        return found.value if found is not None else library.UNKNOWN

    def class_attribute(self, owner: Class, name: str) -> Value:
        """An attribute of a class or of the bases that can be read."""
        for item in owner.node.body:
            if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef)) and item.name == name:
                return Function(owner.module, item, self.names_of(owner.module))
            targets = item.targets if isinstance(item, ast.Assign) else [getattr(item, "target", None)]
            if any(isinstance(target, ast.Name) and target.id == name for target in targets):
                assigned = getattr(item, "value", None)
                return self.in_module(owner.module, assigned) if assigned is not None else Opaque(f"{owner}.{name}")
        if name == "__name__":
            return owner.name
        for base in self.bases(owner):
            if isinstance(base, Class):
                stored = self.attached(base, name)
                return stored if stored is not library.UNKNOWN else self.class_attribute(base, name)
        return Opaque(f"{owner}.{name}")

    def bases(self, owner: Class) -> list[Value]:
        return [self.in_module(owner.module, base) for base in owner.node.bases]

    def in_module(self, module: Module, node: ast.expr) -> Value:
        """An expression evaluated among a module's names."""
        before = self.module, self.scope
        self.module, self.scope = module, self.names_of(module)
        try:
            return self.value(node)
        finally:
            self.module, self.scope = before

    def of_call(self, node: ast.Call) -> Value:
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

    def call(self, function: Value, args: list[Value], kwargs: dict[str, Value], node: ast.AST | None) -> Value:
        """Calls a value: this package's functions are executed, everything else is recorded."""
        self.step()
        line = getattr(node, "lineno", 0)
        if isinstance(function, Function):
            return self.execute(function, args, kwargs)
        if isinstance(function, Partial):
            if function.function is library.METHOD:
                return self.method(function.args[0], function.args[1], args, kwargs, line)
            return self.call(function.function, [*function.args, *args], {**dict(function.kwargs), **kwargs}, node)
        if isinstance(function, Symbol):
            known = library.call(self, function.name, args, kwargs, line)
            if known is not library.UNKNOWN:
                return known
        made = Call(function, tuple(args), kwargs, line)
        self.record(made)
        return made

    def method(self, owner: Value, name: str, args: list[Value], kwargs: dict[str, Value], line: int) -> Value:
        """A method of a built-in container or string; recorded where it is not known."""
        known = library.method(self, owner, name, args, kwargs)
        if known is not library.UNKNOWN:
            return known
        made = Call(Opaque(f"{show(owner)}.{name}"), tuple(args), kwargs, line)
        self.record(made)
        return made

    # what the Evaluator gives

    attributes: dict[tuple[Value, str], Any]

    def names_of(self, module: Module) -> Scope:
        raise NotImplementedError

    def module_attribute(self, module: Module, name: str) -> Value:
        raise NotImplementedError

    def imported(self, module_name: str, name: str | None) -> Value:
        raise NotImplementedError

    def store(self, target: ast.expr, value: Value) -> None:
        raise NotImplementedError

    def set_attribute(self, owner: Value, name: str, value: Value, line: int) -> None:
        raise NotImplementedError

    def execute(self, function: Function, args: list[Value], kwargs: dict[str, Value]) -> Value:
        raise NotImplementedError

    def record(self, call: Call) -> None:
        raise NotImplementedError
