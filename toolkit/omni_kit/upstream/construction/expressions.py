"""The values of expressions in a constructor: names, attributes, arithmetic, containers."""

import ast
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from omni_kit.pysource.classes import ClassRef, ClassTable, FunctionRef
from omni_kit.pysource.eval import UNKNOWN
from omni_kit.pysource.source import Imported, SourceFile
from omni_kit.upstream.construction.values import Config, Module, Tensor

MAX_ITEMS = 4096


def _times(left: Any, right: Any) -> Any:
    """A product; a sequence only as often as can be gone through."""
    for items, times in ((left, right), (right, left)):
        if isinstance(items, (list, tuple, str)) and isinstance(times, int) and len(items) * times > MAX_ITEMS:
            raise OverflowError("longer than anything that is gone through")
    return left * right


def _power(left: Any, right: Any) -> Any:
    if isinstance(right, int) and abs(right) > 64:
        raise OverflowError("larger than any size")
    return left**right


BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: _times,
    ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv,
    ast.Mod: operator.mod,
    ast.Pow: _power,
}
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
}

# What tells the value of each type of expressions.
_GETTERS = {kind: f"get_{kind.__name__.lower()}" for kind in ast.expr.__subclasses__()}


class Expressions(ABC):
    """Evaluates expressions in the scope of one method, or of one function."""

    def __init__(self, home: ClassRef | FunctionRef, scope: dict[str, Any]) -> None:
        self.home = home
        self.source = home.source
        self.scope = scope

    @abstractmethod
    def from_table(self, table: ClassTable, key: Any) -> Any:
        """What a table of classes makes of the one that it holds for `key`."""

    @abstractmethod
    def bind(self, target: ast.expr, value: Any) -> None:
        """Gives a name its value, or several names theirs."""

    def value(self, node: ast.expr) -> Any:
        """What an expression is worth; UNKNOWN where that cannot be told."""
        handler = getattr(self, _GETTERS.get(type(node), ""), None)
        if handler is None:
            return UNKNOWN
        try:
            return handler(node)
        except (TypeError, ValueError, KeyError, IndexError, AttributeError, ZeroDivisionError, OverflowError):
            return UNKNOWN

    def get_constant(self, node: ast.Constant) -> Any:
        """A literal."""
        return node.value

    def get_name(self, node: ast.Name) -> Any:
        """A variable of the method, a constant or a class of the file."""
        if node.id in self.scope:
            return self.scope[node.id]
        if (defined := self.defined(self.source, node.id)) is not UNKNOWN:
            return defined
        constant = self.source.constants.get(node.id)
        if constant is not None:
            return self.value(constant)
        return self.class_table(node.id)

    def defined(self, source: SourceFile, name: str) -> Any:
        """The class or the function that a name means in a file."""
        if (cls := source.resolve_class(name)) is not None:
            return ClassRef(*cls)
        function = source.resolve_function(name)
        return FunctionRef(*function) if function is not None else UNKNOWN

    def imported(self, imported: Imported) -> Any:
        """The class or the function of the library that an import brings."""
        home = self.source.home_of(imported)
        return self.defined(*home) if home is not None else UNKNOWN

    def class_table(self, name: str) -> Any:
        """A table of classes of another file, as activations have one: a dict, or `Maker(dict)`, which makes them."""
        found = self.source.resolve_constant(name)
        if found is None:
            return UNKNOWN
        source, table = found
        makes = isinstance(table, ast.Call) and len(table.args) == 1
        if isinstance(table, ast.Call) and makes:
            table = table.args[0]
        if isinstance(table, ast.Name):
            source, table = source.resolve_constant(table.id) or (source, table)
        return ClassTable(source, table, makes) if isinstance(table, ast.Dict) else UNKNOWN

    def get_attribute(self, node: ast.Attribute) -> Any:
        """An attribute of self, of a config or of a module."""
        base = self.value(node.value)
        if isinstance(base, Config):
            return base.get(node.attr)
        if isinstance(base, Tensor):
            return base.shape if node.attr == "shape" and base.shape is not None else UNKNOWN
        if isinstance(base, Module) and node.attr == "config" and "config" not in base.attributes:
            return UNKNOWN
        if isinstance(base, Module):
            alternatives = base.attributes.get(node.attr)
            if alternatives is None:
                return self.class_attribute(base, node.attr)
            return alternatives[0] if len(alternatives) == 1 else UNKNOWN
        return UNKNOWN

    def class_attribute(self, module: Module, name: str) -> Any:
        """What the class assigns in its body."""
        found = module.cls.assigned(name) if module.cls is not None else None
        return ast.literal_eval(found[1]) if found is not None else UNKNOWN

    def get_subscript(self, node: ast.Subscript) -> Any:
        """An item of a list, a dict or a container of modules."""
        base, key = self.value(node.value), self.value(node.slice)
        if isinstance(base, ClassTable):
            return self.from_table(base, key)
        if isinstance(base, Module) and key is not UNKNOWN:
            return base.attributes[str(key)][-1]
        return UNKNOWN if base is UNKNOWN or key is UNKNOWN else base[key]

    def get_slice(self, node: ast.Slice) -> Any:
        """A slice, as Python takes it."""
        parts = [None if p is None else self.value(p) for p in (node.lower, node.upper, node.step)]
        return UNKNOWN if UNKNOWN in parts else slice(*parts)

    def get_binop(self, node: ast.BinOp) -> Any:
        """An operation on two known values."""
        left, right = self.value(node.left), self.value(node.right)
        if isinstance(left, Tensor) != isinstance(right, Tensor):  # a number scales or shifts it
            return left if isinstance(left, Tensor) else right
        return UNKNOWN if UNKNOWN in (left, right) else BINARY[type(node.op)](left, right)

    def get_unaryop(self, node: ast.UnaryOp) -> Any:
        """A sign, or `not`."""
        operand = self.value(node.operand)
        if operand is UNKNOWN:
            return UNKNOWN
        return not operand if isinstance(node.op, ast.Not) else -operand

    def get_boolop(self, node: ast.BoolOp) -> Any:
        """`and` and `or`, as far as the parts that are known decide."""
        decisive = isinstance(node.op, ast.Or)
        value: Any = UNKNOWN
        for item in node.values:
            value = self.value(item)
            if value is UNKNOWN:
                return UNKNOWN
            if bool(value) == decisive:
                return value
        return value

    def get_compare(self, node: ast.Compare) -> Any:
        """A comparison of known values."""
        left = self.value(node.left)
        for op, item in zip(node.ops, node.comparators, strict=True):
            right = self.value(item)
            if left is UNKNOWN or right is UNKNOWN:
                return UNKNOWN
            if not _COMPARE[type(op)](left, right):
                return False
            left = right
        return True

    def get_ifexp(self, node: ast.IfExp) -> Any:
        """The branch that the condition chooses; where it cannot be told, a module of either."""
        test = self.value(node.test)
        if test is not UNKNOWN:
            return self.value(node.body if test else node.orelse)
        both = [self.value(node.body), self.value(node.orelse)]
        modules = [v for v in both if isinstance(v, (Module, Tensor, ClassRef))]
        return modules[0] if len(modules) == 1 else UNKNOWN

    def get_list(self, node: ast.List) -> Any:
        """A list."""
        return self.elements(node.elts)

    def get_tuple(self, node: ast.Tuple) -> Any:
        """A tuple."""
        return tuple(self.elements(node.elts))

    def get_dict(self, node: ast.Dict) -> Any:
        """A dict."""
        return {self.value(k): self.value(v) for k, v in zip(node.keys, node.values, strict=True) if k is not None}

    def get_joinedstr(self, node: ast.JoinedStr) -> Any:
        """A formatted string, if all its parts are known."""
        parts = [self.value(p.value if isinstance(p, ast.FormattedValue) else p) for p in node.values]
        return UNKNOWN if UNKNOWN in parts else "".join(str(p) for p in parts)

    def get_listcomp(self, node: ast.ListComp | ast.GeneratorExp) -> Any:
        """A list comprehension over known items."""
        return self.comprehended(node.generators, lambda: self.value(node.elt))

    get_generatorexp = get_listcomp

    def get_dictcomp(self, node: ast.DictComp) -> Any:
        """A dict comprehension over known items."""
        pairs = self.comprehended(node.generators, lambda: (self.value(node.key), self.value(node.value)))
        return pairs if pairs is UNKNOWN else dict(pairs)

    def comprehended(self, generators: list[ast.comprehension], element: Callable[[], Any]) -> Any:
        """What `element` gives for each item of one loop; UNKNOWN for several loops, and over what is not known."""
        items = self.value(generators[0].iter)
        if items is UNKNOWN or len(generators) != 1 or not hasattr(items, "__len__") or len(items) > MAX_ITEMS:
            return UNKNOWN
        saved = dict(self.scope)
        result = []
        for item in items:
            self.bind(generators[0].target, item)
            if all(self.value(test) for test in generators[0].ifs):
                result.append(element())
        self.scope = saved
        return result

    def args(self, node: ast.Call) -> list[Any]:
        """The positional arguments of a call, starred ones spread out."""
        return self.elements(node.args)

    def elements(self, nodes: list[ast.expr]) -> list[Any]:
        """The values of several expressions, starred ones spread out."""
        values: list[Any] = []
        for item in nodes:
            if isinstance(item, ast.Starred):
                inner = self.value(item.value)
                values.extend(inner if isinstance(inner, (list, tuple)) else [UNKNOWN])
            else:
                values.append(self.value(item))
        return values

    def kwargs(self, node: ast.Call) -> dict[str, Any]:
        """The named arguments of a call, `**` of dicts and configs spread out."""
        found: dict[str, Any] = {}
        for keyword in node.keywords:
            value = self.value(keyword.value)
            if keyword.arg is not None:
                found[keyword.arg] = value
            elif isinstance(value, (dict, Config)):
                found |= value if isinstance(value, dict) else value.given
        return found
