"""The values of expressions in a config."""

import ast
import operator
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any

from omni_kit.patchgen import spec
from omni_kit.patchgen.reader import known
from omni_kit.patchgen.reader.values import (
    COLLECTIONS,
    RECORDS,
    Native,
    Scope,
    Unreadable,
    Written,
    bounded,
    is_live,
    plain,
)
from omni_kit.patchgen.standins import StandIn

_BINARY: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv,
    ast.BitOr: operator.or_,
    ast.BitAnd: operator.and_,
}
_UNARY: Mapping[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Invert: operator.invert,
}
_COMPARE: Mapping[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
}


class Expressions(ABC):
    """Evaluates expressions in a scope."""

    scope: Scope

    @abstractmethod
    def spend(self) -> None:
        """Takes one step off the budget that keeps a reading short."""

    @abstractmethod
    def called(self, function: Any, arguments: list[Any], keywords: dict[str, Any], node: ast.Call) -> Any:
        """What a call gives."""

    @abstractmethod
    def written(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> Written:
        """The function that a definition makes."""

    @abstractmethod
    def bind(self, target: ast.expr, value: Any) -> None:
        """Gives a value to what an assignment or a loop names."""

    @abstractmethod
    def inner(self) -> "Expressions":
        """The same in a scope of its own, as a comprehension has it."""

    def value(self, node: ast.expr) -> Any:
        """What an expression is worth.

        Raises:
            Unreadable: that cannot be told.
        """
        self.spend()
        reader = getattr(self, f"of_{type(node).__name__.lower()}", None)
        if reader is None:
            raise Unreadable(f"has an expression that is not read ({type(node).__name__})")
        return reader(node)

    def truth(self, node: ast.expr) -> bool:
        """Whether an expression is true."""
        return self.is_true(self.value(node))

    def is_true(self, value: Any) -> bool:
        """Whether a value is true."""
        if isinstance(value, StandIn):
            raise Unreadable(f"depends on {value.path}")
        return bool(value)

    def items(self, node: ast.expr) -> Sequence[Any]:
        """The items of what is gone through."""
        value = self.value(node)
        if isinstance(value, StandIn):
            raise Unreadable(f"goes through {value.path}")
        if not isinstance(value, (str, *COLLECTIONS)):
            raise Unreadable(f"goes through a {type(value).__name__}")
        return list(value)

    def of_constant(self, node: ast.Constant) -> Any:
        """A literal."""
        return bounded(node.value)

    def of_name(self, node: ast.Name) -> Any:
        """A name of the file, or a built-in that is known."""
        holder = self.scope.holder(node.id)
        if holder is not None:
            found = holder.names[node.id]
        elif node.id in known.BUILTINS:
            found = Native(known.BUILTINS[node.id])
        else:
            raise Unreadable(f"uses {node.id}")
        return readable(found)

    def of_attribute(self, node: ast.Attribute) -> Any:
        """An attribute of whatever stands before the dot."""
        return self.attribute(self.value(node.value), node.attr)

    def attribute(self, base: Any, name: str) -> Any:
        """An attribute of a value."""
        if base is spec:
            return known.of_dsl(name)
        if isinstance(base, StandIn):
            path = f"{base.path}.{name}"
            own = name == "path" or name.startswith("__")  # of the stand-in itself
            return known.CONSTANTS.get(path, StandIn(path) if own else getattr(base, name))
        if isinstance(base, ModuleType):
            if name not in vars(base):
                raise Unreadable(f"uses {name}, which {base.__name__} does not define")
            return readable(vars(base)[name])
        if isinstance(base, Written):
            return self.member(base, name)
        return known.attribute(base, name)

    def member(self, owner: Written, name: str) -> Any:
        """What a class defines or inherits, or the name of a definition."""
        if name in {"__name__", "__qualname__", "__module__"}:
            return getattr(owner, name)
        if name in owner.members:
            return owner.members[name]
        for base in owner.bases:
            if isinstance(base, Written) and base is not owner:
                return self.member(base, name)
        raise Unreadable(f"uses {owner.__name__}.{name}")

    def of_subscript(self, node: ast.Subscript) -> Any:
        """An item, or a slice."""
        base = self.value(node.value)
        if isinstance(base, (StandIn, Native, Written)):
            return StandIn("subscripted")  # a type in brackets, as annotations have it
        key = self.value(node.slice)
        if not isinstance(base, (str, list, tuple, dict)):
            raise Unreadable(f"takes an item of a {type(base).__name__}")
        return base[key if isinstance(key, slice) else plain(key)]

    def of_slice(self, node: ast.Slice) -> slice:
        """A slice of numbers."""
        return slice(*(plain(self.value(part)) if part else None for part in (node.lower, node.upper, node.step)))

    def of_tuple(self, node: ast.Tuple) -> Any:
        """A tuple."""
        return tuple(self.elements(node.elts))

    def of_list(self, node: ast.List) -> Any:
        """A list."""
        return self.elements(node.elts)

    def of_set(self, node: ast.Set) -> Any:
        """A set."""
        return set(plain(self.elements(node.elts)))

    def of_dict(self, node: ast.Dict) -> Any:
        """A dict."""
        found: dict[Any, Any] = {}
        for key, value in zip(node.keys, node.values, strict=True):
            if key is not None:
                found[plain(self.value(key))] = self.value(value)
            elif isinstance(inside := self.value(value), dict):
                found.update(inside)
            else:
                raise Unreadable("unpacks what is no dict")
        return bounded(found)

    def elements(self, nodes: Sequence[ast.expr]) -> list[Any]:
        """The values of several expressions; starred ones are unpacked."""
        found: list[Any] = []
        for node in nodes:
            if isinstance(node, ast.Starred):
                found += self.items(node.value)
            else:
                found.append(self.value(node))
        bounded(found)
        return found

    def of_binop(self, node: ast.BinOp) -> Any:
        """An operation; with a stand-in, another stand-in."""
        return self.combined(node.op, self.value(node.left), self.value(node.right))

    def combined(self, op: ast.operator, left: Any, right: Any) -> Any:
        """Two values combined by an operator."""
        if isinstance(left, (StandIn, Written)) or isinstance(right, (StandIn, Written)):
            return StandIn("computed")
        if isinstance(op, (ast.Mult, ast.Mod)):
            return known.multiplied(left, right) if isinstance(op, ast.Mult) else known.remainder(left, right)
        if type(op) not in _BINARY or isinstance(left, (*RECORDS, Native)) or isinstance(right, (*RECORDS, Native)):
            raise Unreadable("computes what is not read")
        return bounded(_BINARY[type(op)](left, right))

    def of_unaryop(self, node: ast.UnaryOp) -> Any:
        """A sign, or `not`."""
        operand = self.value(node.operand)
        if isinstance(node.op, ast.Not):
            return not self.is_true(operand)
        return StandIn("computed") if isinstance(operand, StandIn) else _UNARY[type(node.op)](plain(operand))

    def of_boolop(self, node: ast.BoolOp) -> Any:
        """`and` and `or`, of which the parts behind the decisive one are not looked at."""
        value: Any = None
        for part in node.values:
            value = self.value(part)
            if part is not node.values[-1] and self.is_true(value) == isinstance(node.op, ast.Or):
                return value
        return value

    def of_compare(self, node: ast.Compare) -> Any:
        """Comparisons of plain values, and identity."""
        left = self.value(node.left)
        for op, comparator in zip(node.ops, node.comparators, strict=True):
            right = self.value(comparator)
            if isinstance(left, StandIn) or isinstance(right, StandIn):
                return StandIn("compared")
            if isinstance(op, (ast.Is, ast.IsNot)):
                holds = (left is right) == isinstance(op, ast.Is)
            else:
                holds = _COMPARE[type(op)](plain(left), plain(right))
            if not holds:
                return False
            left = right
        return True

    def of_ifexp(self, node: ast.IfExp) -> Any:
        """One of two values."""
        return self.value(node.body if self.truth(node.test) else node.orelse)

    def of_namedexpr(self, node: ast.NamedExpr) -> Any:
        """A value that gets a name."""
        value = self.value(node.value)
        self.bind(node.target, value)
        return value

    def of_joinedstr(self, node: ast.JoinedStr) -> Any:
        """A text with values in it; a stand-in where one of them is."""
        parts = []
        for part in node.values:
            if isinstance(part, ast.FormattedValue) and (part.format_spec or part.conversion != -1):
                raise Unreadable("formats by more than names")
            value = self.value(part.value if isinstance(part, ast.FormattedValue) else part)
            if isinstance(value, StandIn):
                return StandIn("formatted")
            parts.append(known.BUILTINS["str"](value))
        return bounded("".join(parts))

    def of_lambda(self, node: ast.Lambda) -> Any:
        """A function without a name."""
        return self.written(node)

    def of_call(self, node: ast.Call) -> Any:
        """A call; its arguments come first."""
        function = self.value(node.func)
        arguments = self.elements(node.args)
        keywords: dict[str, Any] = {}
        for keyword in node.keywords:
            value = self.value(keyword.value)
            if keyword.arg is not None:
                keywords[keyword.arg] = value
            elif isinstance(value, dict) and all(isinstance(key, str) for key in value):
                keywords.update(value)
            else:
                raise Unreadable("unpacks what is no dict of names")
        return self.called(function, arguments, keywords, node)

    def of_listcomp(self, node: ast.ListComp) -> Any:
        """A list by comprehension."""
        return bounded([inside.value(node.elt) for inside in self.passes(node.generators)])

    def of_generatorexp(self, node: ast.GeneratorExp) -> Any:
        """A generator, as the list of what it would give."""
        return bounded([inside.value(node.elt) for inside in self.passes(node.generators)])

    def of_setcomp(self, node: ast.SetComp) -> Any:
        """A set by comprehension."""
        return set(plain([inside.value(node.elt) for inside in self.passes(node.generators)]))

    def of_dictcomp(self, node: ast.DictComp) -> Any:
        """A dict by comprehension."""
        found = {}
        for inside in self.passes(node.generators):
            found[plain(inside.value(node.key))] = inside.value(node.value)
        return bounded(found)

    def passes(self, generators: Sequence[ast.comprehension]) -> Iterator["Expressions"]:
        """The evaluation of each pass through nested loops."""
        first, *rest = generators
        if first.is_async:
            raise Unreadable("waits for something")
        for item in self.items(first.iter):
            inside = self.inner()
            inside.bind(first.target, item)
            if all(inside.truth(test) for test in first.ifs):
                if rest:
                    yield from inside.passes(rest)
                else:
                    yield inside

    def foreign(self, function: StandIn, arguments: list[Any], keywords: dict[str, Any]) -> Any:
        """What a call of something imported gives: a stand-in, or the definition that a foreign function is given."""
        given = [*arguments, *keywords.values()]
        if function.path in known.LIBRARY and not any(isinstance(value, StandIn) for value in given):
            return known.call(known.LIBRARY[function.path], arguments, keywords)
        if any(map(is_live, given)):
            raise Unreadable(f"passes the config to {function.path}")
        functions = [one for one in given if isinstance(one, Written) and not isinstance(one.node, ast.ClassDef)]
        if functions and function.path.partition(".")[0] in sys.stdlib_module_names:
            raise Unreadable(f"passes {functions[0].__name__} to {function.path}")
        if len(given) == 1 and not keywords and isinstance(given[0], Written):
            return given[0]
        return StandIn(f"{function.path}()")


def readable(value: Any) -> Any:
    """A value that a name has.

    Raises:
        Unreadable: the name has one that cannot be told.
    """
    if isinstance(value, Unreadable):
        raise value
    return value
