"""Works out plain functions of numbers, such as a schedule of noise, from their source: nothing is run."""

import ast
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from omni_kit.pysource.source import SourceFile
from omni_kit.upstream.repositories.names import Defined, absolute, resolve
from omni_kit.upstream.repositories.vectors import (
    BUILTIN,
    MOST,
    Untold,
    arange,
    clamped,
    each,
    linspace,
    products,
    taken,
)

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
    "expm1": math.expm1, "log1p": math.log1p, "square": lambda x: x**2, "rsqrt": lambda x: x**-0.5,
}  # fmt: skip
_SAME = ("to", "float", "double", "clone", "detach", "cpu", "numpy", "tolist", "item", "contiguous", "astype", "type",
         "copy")  # fmt: skip
_MADE = ("tensor", "as_tensor", "array", "asarray", "from_numpy", "float", "list", "tuple", "FloatTensor")
_WHOLE: Mapping[str, Callable[[float], float]] = {"round": round, "long": int, "int": int, "floor": math.floor}
_REAL = ("float", "double")
_TYPED = ("to", "astype", "type")
_CUT = ("clamp", "clip")
_JOINED = ("cat", "concat", "concatenate", "hstack")


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
                self.scope[node.target.id] = each(_BINARY[type(node.op)], *both)
            elif isinstance(node, ast.For) and isinstance(node.target, ast.Name) and not node.orelse:
                self._repeated(node, node.target.id)
            elif isinstance(node, ast.Expr) and (longer := _appended(node)) is not None:
                self.scope[longer[0]] = [*self.scope[longer[0]], self.value(longer[1])]
            elif not isinstance(node, ast.Expr | ast.Pass | ast.Assert):
                raise Untold(type(node).__name__)
        return False, None

    def _repeated(self, node: ast.For, name: str) -> None:
        """A loop from its first statement to its last."""
        for item in self.value(node.iter)[:MOST]:
            self.scope[name] = item
            if self.run(node.body)[0]:
                raise Untold("a loop that is left")

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
        return not value if isinstance(node.op, ast.Not) else each(lambda one: -one, value)

    def get_binop(self, node: ast.BinOp) -> Any:
        """Of numbers, or of every element; two written lists are joined."""
        left, right = self.value(node.left), self.value(node.right)
        plain = isinstance(node.left, ast.List | ast.ListComp) or isinstance(node.right, ast.List | ast.ListComp)
        if isinstance(node.op, ast.Add) and plain and isinstance(left, list) and isinstance(right, list):
            return left + right
        return each(_BINARY[type(node.op)], left, right)

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
        """One element, a part, or the elements at several places."""
        return taken(self.value(node.value), self.value(node.slice))

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

    def get_lambda(self, node: ast.Lambda) -> Any:
        """A function of what is known here."""
        names = [one.arg for one in node.args.args]
        return lambda *given: Worker(
            self.source, {**self.scope, **dict(zip(names, given, strict=True))}, self.depth + 1
        ).value(node.body)

    def get_call(self, node: ast.Call) -> Any:
        """A function of the authors', of a vector, or of a library."""
        if isinstance(node.func, ast.Name) and callable(own := self.scope.get(node.func.id)):
            return own(*map(self.value, node.args))
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        known = absolute(self.source, node.func) or (name if isinstance(node.func, ast.Name) else "")
        meant = resolve(self.source, name) if isinstance(node.func, ast.Name) else None
        if isinstance(meant, Defined) and isinstance(meant.node, ast.FunctionDef):
            names = [one.arg for one in meant.node.args.args]
            given = dict(zip(names, map(self.value, node.args), strict=False))
            given |= {one.arg: self.value(one.value) for one in node.keywords if one.arg}
            return called(meant.source, meant.node, given, self.depth + 1)
        if isinstance(node.func, ast.Name) and meant is None and name in BUILTIN and not node.keywords:
            return BUILTIN[name](*map(self.value, node.args))
        if not known and isinstance(node.func, ast.Attribute):
            return self._asked(node, name)
        return self._of_library(node, name)

    def _asked(self, node: ast.Call, name: str) -> Any:
        """A method of a vector."""
        assert isinstance(node.func, ast.Attribute)
        base = self.value(node.func.value)
        if name in _CUT:
            return self._cut(base, node.args, node.keywords)
        if name in _SAME:
            if name in _REAL:
                return each(float, base)
            return each(int, base) if name in _TYPED and _is_whole(node) else base
        if name in _PLAIN:
            return each(_PLAIN[name], base)
        if name == "flip":
            return base[::-1]
        if name in _WHOLE:
            return each(_WHOLE[name], base)
        if name == "cumprod":
            return products(base)
        raise Untold(name)

    def _cut(self, values: Any, given: Sequence[ast.expr], named: Sequence[ast.keyword]) -> Any:
        bounds = {**dict(zip(("min", "max"), given, strict=False)), **{one.arg: one.value for one in named if one.arg}}
        low, high = (bounds.get(one, bounds.get(f"a_{one}")) for one in ("min", "max"))
        return clamped(values, *(self.value(one) if one is not None else None for one in (low, high)))

    def _of_library(self, node: ast.Call, name: str) -> Any:
        if name in _CUT:
            return self._cut(self.value(node.args[0]), node.args[1:], node.keywords)
        given = [self.value(one) for one in node.args]
        named = {one.arg: one.value for one in node.keywords}
        if name == "linspace":
            count = given[2] if len(given) > 2 else self.value(named.get("steps") or named["num"])
            return linspace(given[0], given[1], count)
        if name == "arange":
            return arange(*given)
        if name == "append":
            return [one for part in given for one in (part if isinstance(part, list) else [part])]
        if name == "flip":
            return given[0][::-1]
        if name in _WHOLE:
            return each(_WHOLE[name], given[0])
        if name in ("zeros", "ones"):
            return [float(name == "ones")] * int(given[0])
        if name == "cumprod":
            return products(given[0])
        if name in _JOINED:
            return [one for part in given[0] for one in part]
        if name in _MADE:
            return given[0]
        if name in _PLAIN:
            return each(_PLAIN[name], given[0])
        raise Untold(name)


def _is_whole(call: ast.Call) -> bool:
    """Whether a type is asked for that holds whole numbers alone."""
    given = [*call.args, *(one.value for one in call.keywords)]
    names = [one.attr if isinstance(one, ast.Attribute) else getattr(one, "id", "") for one in given]
    return any(name in ("int", "long") or name.startswith("int") for name in names)


def _appended(node: ast.Expr) -> tuple[str, ast.expr] | None:
    """The list that a statement makes longer, and by what."""
    match node.value:
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="append"), args=[one], keywords=[]):
            return name, one
    return None
