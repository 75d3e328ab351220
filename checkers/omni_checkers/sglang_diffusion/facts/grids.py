"""Grids of sigmas as numbers: what an expression gives for a number of steps."""

import ast
from collections.abc import Mapping

from omni_kit.pysource.classes import ClassRef
from omni_kit.pysource.nodes import assigned, calls, keyword, last_name, returns
from omni_kit.pysource.source import dotted

STEPS = 10
_PASSED = frozenset({"tolist", "astype", "to", "array", "float", "list", "tensor", "asarray", "flip_none"})
_DEEPEST = 8
Number = float | list[float]


class NotRead(Exception):
    """Something in an expression is not followed."""


def grid(node: ast.expr, function: ast.FunctionDef) -> list[float] | None:
    """The values of an expression of a function for STEPS steps; None where it cannot be read."""
    try:
        found = _value(node, function, {}, 0)
    except (NotRead, ZeroDivisionError, TypeError, IndexError):
        return None
    return found if isinstance(found, list) else None


def _value(node: ast.expr, function: ast.FunctionDef, known: Mapping[str, float], depth: int) -> Number:
    if depth > _DEEPEST:
        raise NotRead
    match node:
        case ast.Constant(value=int() | float() as value):
            return float(value)
        case ast.UnaryOp(op=ast.USub()):
            return _each("neg", _value(node.operand, function, known, depth), 0.0)
        case ast.BinOp():
            left, right = (_value(one, function, known, depth) for one in (node.left, node.right))
            return _each(type(node.op).__name__, left, right)
        case ast.IfExp():
            return _value(_not_given(node), function, known, depth)
        case ast.Name(id=name) if name in known:
            return known[name]
        case ast.Name(id=name):
            values = [value for value in assigned(function, name) if dotted(value) != name]
            if values:
                return _value(values[0], function, known, depth + 1)
            if "step" in name:
                return float(STEPS)
        case ast.Attribute(attr=name) if "step" in name:
            return float(STEPS)
        case ast.Subscript(slice=ast.Slice() as part):
            return _cut(_value(node.value, function, known, depth), part, function, known, depth)
        case ast.ListComp(generators=[loop]):
            return _listed(node, loop, function, known, depth)
        case ast.Call():
            return _called(node, function, known, depth)
    raise NotRead


def _not_given(node: ast.IfExp) -> ast.expr:
    """The branch for sigmas that nobody gave."""
    test = node.test
    if isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Is):
        return node.body
    return node.orelse


def _called(node: ast.Call, function: ast.FunctionDef, known: Mapping[str, float], depth: int) -> Number:
    name = last_name(node.func)
    if name == "linspace" and len(node.args) >= 2:
        count = node.args[2] if len(node.args) > 2 else keyword(node, "num") or keyword(node, "steps")
        if count is None:
            raise NotRead
        first, last, number = (_value(one, function, known, depth) for one in (*node.args[:2], count))
        if isinstance(first, list) or isinstance(last, list) or isinstance(number, list):
            raise NotRead
        return [first + (last - first) * i / max(1, int(number) - 1) for i in range(int(number))]
    if name in _PASSED:
        owner = node.func.value if isinstance(node.func, ast.Attribute) else None
        inner = node.args[0] if owner is None or dotted(owner) in ("np", "numpy", "torch") else owner
        return _value(inner, function, known, depth)
    if name in ("int", "max") and node.args:
        return _value(node.args[0] if name == "int" else node.args[-1], function, known, depth)
    raise NotRead


def _listed(
    node: ast.ListComp, loop: ast.comprehension, function: ast.FunctionDef, known: Mapping[str, float], depth: int
) -> Number:
    if not (isinstance(loop.iter, ast.Call) and last_name(loop.iter.func) == "range" and len(loop.iter.args) == 1):
        raise NotRead
    count = _whole(loop.iter.args[0], function, known, depth)
    name = getattr(loop.target, "id", "")
    found = [_value(node.elt, function, {**known, name: float(i)}, depth) for i in range(count)]
    return [one for one in found if isinstance(one, float)]


def _cut(
    value: Number, part: ast.Slice, function: ast.FunctionDef, known: Mapping[str, float], depth: int
) -> list[float]:
    if not isinstance(value, list):
        raise NotRead
    parts = (part.lower, part.upper, part.step)
    first, last, step = (None if one is None else _whole(one, function, known, depth) for one in parts)
    return value[slice(first, last, step)]


def _whole(node: ast.expr, function: ast.FunctionDef, known: Mapping[str, float], depth: int) -> int:
    found = _value(node, function, known, depth)
    if isinstance(found, list):
        raise NotRead
    return int(found)


def _each(how: str, one: Number, two: Number) -> Number:
    """An operation on numbers, or on each item of a list."""
    if isinstance(one, list) or isinstance(two, list):
        length = len(one) if isinstance(one, list) else len(two)  # type: ignore[arg-type]
        left = one if isinstance(one, list) else [one] * length
        right = two if isinstance(two, list) else [two] * length
        return [float(_each(how, a, b)) for a, b in zip(left, right, strict=True)]  # type: ignore[arg-type]
    match how:
        case "neg":
            return -one
        case "Add":
            return one + two
        case "Sub":
            return one - two
        case "Mult":
            return one * two
        case "Div":
            return one / two
        case "FloorDiv":
            return one // two
        case "Pow":
            return float(one**two)
    raise NotRead


def upstream_grid(pipeline: ClassRef) -> list[float] | None:
    """The sigmas that a pipeline of diffusers makes where nobody gives any."""
    found = pipeline.method("__call__")
    for value in assigned(found[1], "sigmas") if found is not None else ():
        if found is not None and (values := grid(value, found[1])) is not None:
            return values
    return None


def returned_grid(cls: ClassRef, method: str) -> list[float] | None:
    """The sigmas that a method of a config answers where nobody gives any; empty where it makes none."""
    found = cls.method(method)
    if found is None:
        return None
    for value in returns(found[1]):
        inner = next(iter(calls(value, "_prepare_sigmas")), None)
        if inner is not None:
            return returned_grid(cls, "_prepare_sigmas")
        if (values := grid(value, found[1])) is not None:
            return values
    only_passed = all(dotted(value) == "sigmas" for value in returns(found[1]))
    return [] if only_passed and not assigned(found[1], "sigmas") else None
