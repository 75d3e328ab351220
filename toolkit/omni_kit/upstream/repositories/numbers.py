"""Works out plain functions of numbers, such as a schedule of noise, from their source: nothing is run."""

import ast
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from omni_kit.upstream.python.source import SourceFile
from omni_kit.upstream.repositories.names import Defined, absolute, resolve

_MOST = 4096
_DEEPEST = 8
_BINARY: Mapping[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.Pow: operator.pow, ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod,
}  # fmt: skip
_COMPARED: Mapping[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge, ast.Is: operator.is_, ast.IsNot: operator.is_not,
}  # fmt: skip
_PLAIN: Mapping[str, Callable[[float], float]] = {
    "exp": math.exp, "log": math.log, "sqrt": math.sqrt, "cos": math.cos, "sin": math.sin, "tan": math.tan,
    "atan": math.atan, "arctan": math.atan, "abs": abs, "sigmoid": lambda x: 1 / (1 + math.exp(-x)),
}  # fmt: skip
_SAME = ("to", "float", "double", "clone", "detach", "cpu", "numpy", "tolist", "item", "contiguous", "astype", "type")
_MADE = ("tensor", "as_tensor", "array", "asarray", "from_numpy", "float", "list", "tuple", "FloatTensor")
_WHOLE: Mapping[str, Callable[[float], float]] = {"round": round, "long": int, "int": int, "floor": math.floor}
_JOINED = ("cat", "concat", "concatenate", "hstack")


class Untold(Exception):
    """A value that source alone does not tell."""


def called(source: SourceFile, function: ast.FunctionDef, given: Mapping[str, Any], depth: int = 0) -> Any:
    """What a function returns: a number, or a list of numbers where it works with a vector.

    Raises:
        Untold: it does anything that is not followed here.
    """
    names = [one.arg for one in (*function.args.posonlyargs, *function.args.args)]
    scope: dict[str, Any] = {}
    worker = Worker(source, scope, depth)
    for one, default in zip(names[len(names) - len(function.args.defaults) :], function.args.defaults, strict=True):
        scope[one] = worker.value(default)
    for keyword, value in zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True):
        if value is not None:
            scope[keyword.arg] = worker.value(value)
    scope |= given
    if depth > _DEEPEST:
        raise Untold("deeper than anything that is followed")
    answered, answer = worker.run(function.body)
    if not answered:
        raise Untold("nothing is returned")
    return answer


class Worker:
    """One call of a function."""

    def __init__(self, source: SourceFile, scope: dict[str, Any], depth: int) -> None:
        self.source = source
        self.scope = scope
        self.depth = depth

    def run(self, body: Sequence[ast.stmt]) -> tuple[bool, Any]:
        """Whether a `return` was reached, and what it gives."""
        for node in body:
            if isinstance(node, ast.Return):
                return True, self.value(node.value) if node.value is not None else None
            if isinstance(node, ast.If):
                answered, answer = self.run(node.body if self.value(node.test) else node.orelse)
                if answered:
                    return True, answer
            elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                self.scope[node.targets[0].id] = self.value(node.value)
            elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
                both = (self.scope.get(node.target.id), self.value(node.value))
                self.scope[node.target.id] = _each(_BINARY[type(node.op)], *both)
            elif not isinstance(node, ast.Expr | ast.Pass | ast.Assert):
                raise Untold(type(node).__name__)
        return False, None

    def value(self, node: ast.expr) -> Any:
        """What an expression is worth."""
        handler = getattr(self, f"get_{type(node).__name__.lower()}", None)
        if handler is None:
            raise Untold(ast.unparse(node))
        try:
            return handler(node)
        except (ArithmeticError, TypeError, ValueError, LookupError) as error:
            raise Untold(f"{ast.unparse(node)}: {error}") from error

    def get_constant(self, node: ast.Constant) -> Any:
        """As written."""
        return node.value

    def get_name(self, node: ast.Name) -> Any:
        """A variable, or a constant of the file."""
        if node.id in self.scope:
            return self.scope[node.id]
        if (constant := self.source.constants.get(node.id)) is not None:
            return self.value(constant)
        raise Untold(node.id)

    def get_attribute(self, node: ast.Attribute) -> Any:
        """Pi."""
        if absolute(self.source, node) in ("math.pi", "torch.pi", "numpy.pi"):
            return math.pi
        raise Untold(ast.unparse(node))

    def get_list(self, node: ast.List) -> Any:
        """Its elements."""
        return [self.value(one) for one in node.elts]

    get_tuple = get_list

    def get_unaryop(self, node: ast.UnaryOp) -> Any:
        """The negative, or the opposite."""
        value = self.value(node.operand)
        return not value if isinstance(node.op, ast.Not) else _each(lambda one: -one, value)

    def get_binop(self, node: ast.BinOp) -> Any:
        """Of numbers, or of every element; two written lists are joined."""
        left, right = self.value(node.left), self.value(node.right)
        plain = isinstance(node.left, ast.List | ast.ListComp) or isinstance(node.right, ast.List | ast.ListComp)
        if isinstance(node.op, ast.Add) and plain and isinstance(left, list) and isinstance(right, list):
            return left + right
        return _each(_BINARY[type(node.op)], left, right)

    def get_compare(self, node: ast.Compare) -> Any:
        """One comparison."""
        if len(node.ops) != 1:
            raise Untold(ast.unparse(node))
        return _COMPARED[type(node.ops[0])](self.value(node.left), self.value(node.comparators[0]))

    def get_boolop(self, node: ast.BoolOp) -> Any:
        """All, or any."""
        values = [self.value(one) for one in node.values]
        return all(values) if isinstance(node.op, ast.And) else any(values)

    def get_ifexp(self, node: ast.IfExp) -> Any:
        """One of two values."""
        return self.value(node.body if self.value(node.test) else node.orelse)

    def get_subscript(self, node: ast.Subscript) -> Any:
        """One element, or a part."""
        return self.value(node.value)[self.value(node.slice)]

    def get_slice(self, node: ast.Slice) -> Any:
        """Where a part begins and ends."""
        return slice(*(None if one is None else self.value(one) for one in (node.lower, node.upper, node.step)))

    def get_listcomp(self, node: ast.ListComp) -> Any:
        """One value for each element."""
        only = node.generators[0]
        if len(node.generators) != 1 or not isinstance(only.target, ast.Name) or only.ifs:
            raise Untold(ast.unparse(node))
        found = []
        for item in self.value(only.iter):
            self.scope[only.target.id] = item
            found.append(self.value(node.elt))
        return found

    def get_call(self, node: ast.Call) -> Any:
        """A function of the authors', of a vector, or of a library."""
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        known = absolute(self.source, node.func) or (name if isinstance(node.func, ast.Name) else "")
        meant = resolve(self.source, name) if isinstance(node.func, ast.Name) else None
        if isinstance(meant, Defined) and isinstance(meant.node, ast.FunctionDef):
            names = [one.arg for one in meant.node.args.args]
            given = dict(zip(names, map(self.value, node.args), strict=False))
            given |= {one.arg: self.value(one.value) for one in node.keywords if one.arg}
            return called(meant.source, meant.node, given, self.depth + 1)
        if not known and isinstance(node.func, ast.Attribute):
            return self._asked(node, name)
        return self._of_library(node, name)

    def _asked(self, node: ast.Call, name: str) -> Any:
        """A method of a vector."""
        assert isinstance(node.func, ast.Attribute)
        base = self.value(node.func.value)
        if name in _SAME:
            return base
        if name in _PLAIN:
            return _each(_PLAIN[name], base)
        if name == "flip":
            return base[::-1]
        if name in _WHOLE:
            return _each(_WHOLE[name], base)
        if name == "cumprod":
            return _products(base)
        raise Untold(name)

    def _of_library(self, node: ast.Call, name: str) -> Any:
        given = [self.value(one) for one in node.args]
        named = {one.arg: one.value for one in node.keywords}
        if name == "linspace":
            count = given[2] if len(given) > 2 else self.value(named.get("steps") or named["num"])
            return _linspace(given[0], given[1], count)
        if name in ("arange", "range"):
            start, stop, step = (0, given[0], 1) if len(given) == 1 else (*given[:2], given[2] if len(given) > 2 else 1)
            return [start + step * index for index in range(min(_MOST, math.ceil((stop - start) / step)))]
        if name in ("zeros", "ones"):
            return [float(name == "ones")] * int(given[0])
        if name == "cumprod":
            return _products(given[0])
        if name in _JOINED:
            return [one for part in given[0] for one in part]
        if name in _MADE:
            return given[0]
        if name in _PLAIN:
            return _each(_PLAIN[name], given[0])
        raise Untold(name)


def _products(values: list[float]) -> list[float]:
    """Of the first, of the first two, and so on."""
    found, product = [], 1.0
    for value in values:
        product *= value
        found.append(product)
    return found


def _linspace(start: float, stop: float, count: int) -> list[float]:
    if not 0 < count <= _MOST:
        raise Untold("longer than anything that is gone through")
    return [start + (stop - start) * index / max(1, count - 1) for index in range(int(count))]


def _each(compute: Callable[..., Any], *values: Any) -> Any:
    """A computation with numbers, or with every element of vectors."""
    lengths = {len(one) for one in values if isinstance(one, list)}
    if not lengths:
        return compute(*values)
    if len(lengths) > 1:
        raise Untold("vectors of several lengths")
    rows = [one if isinstance(one, list) else [one] * next(iter(lengths)) for one in values]
    return [compute(*row) for row in zip(*rows, strict=True)]
