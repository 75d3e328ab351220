"""The sizes that a failed check had compared: an assertion, or a condition under which something is raised."""

import ast
import linecache
import math
import re
import traceback
from functools import lru_cache
from types import FrameType
from typing import Any

from omni_kit.pysource.nodes import substituted
from omni_kit.upstream.repositories.traits import ENDS

_EQUAL = re.compile(r"asserted (\d+) == (\d+)")
_SHAPES = re.compile(r"asserted shape \[([\d, ]+)\] == \[([\d, ]+)\]")
_LISTED = re.compile(r"asserted (\d+) in \[([\d, ]+)\]")
_DIVIDED = re.compile(r"asserted (\d+) % (\d+) == 0")
_REMAINDER = re.compile(r"asserted (\d+) % (\d+) (==|!=) (\d+)")
_OPPOSITE: dict[type[ast.cmpop], type[ast.cmpop]] = {ast.NotEq: ast.Eq, ast.NotIn: ast.In, ast.Eq: ast.NotEq}
_EVEN = 4  # parts of a head are halved
_MOST = 16  # allowed sizes of a list


def asserted(error: BaseException) -> str:
    """Return what a failed check requires of sizes: `asserted 64 == 1024`, `asserted 8 in [16, 32]`,
    `asserted 20 % 8 == 0`, or `asserted 2 % 2 == 1`; empty for other errors.

    Of two shapes these are the first two sizes that differ. Both sides are computed again where the check stands.
    """
    frame, tests = _failed(error)
    if frame is None:
        return ""
    parts = (part for test in tests for one in _compared(test) for part in _compared(_written_out(one, frame)))
    return next(filter(None, (_said(one, frame) for one in parts)), "")


def condition_of(error: BaseException) -> str:
    """Return the condition of the check that raised an error: `requires x in [1, 2]`; without one the line's code."""
    _, tests = _failed(error)
    said = " and ".join(ast.unparse(test) for test in tests if not isinstance(test, ast.Constant))
    if said:
        return f"requires {said}"
    lines = traceback.extract_tb(error.__traceback__, limit=-1)
    return (lines[-1].line or "") if lines else ""


def _failed(error: BaseException) -> tuple[FrameType | None, list[ast.expr]]:
    """Return where an error was raised, and the conditions that are not met there."""
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    if place is None:
        return None, []
    code, line = place.tb_frame.f_code, place.tb_lineno
    checks = _checks("".join(linecache.getlines(code.co_filename, place.tb_frame.f_globals)))
    return place.tb_frame, [test for node, test in checks if node.lineno <= line <= (node.end_lineno or 0)]


def required_sizes(said: str) -> list[tuple[int, int]]:
    """Return the changes of a size that pass a check as `asserted` describes it: the size, and what it may become."""
    listed, divided, equal = (pattern.search(said) for pattern in (_LISTED, _DIVIDED, _EQUAL))
    if listed:
        size = int(listed[1])
        return [(size, one) for one in sorted(map(int, listed[2].split(",")), key=lambda one: abs(one - size))]
    if divided:
        size, parts = int(divided[1]), int(divided[2])
        fewer = next(one for one in range(min(size, parts), 0, -1) if size % one == 0)
        below = [(size, size // parts * parts)] if size > parts else []
        even = -(-size // (whole := math.lcm(parts, _EVEN))) * whole
        return [(size, even), (size, -(-size // parts) * parts), *below, (parts, fewer)]
    if left := _REMAINDER.search(said):
        size, parts = int(left[1]), int(left[2])
        more = (int(left[4]) - size) % parts if left[3] == "==" else 1
        return [(size, one) for one in (size + more, size + more - parts) if one > 0]
    if equal:
        return [(int(equal[1]), int(equal[2])), (int(equal[2]), int(equal[1]))]
    return []


@lru_cache(maxsize=64)
def _checks(text: str) -> list[tuple[ast.stmt, ast.expr]]:
    """Return the statements of a file that assert or raise, each with a condition that is not met there."""
    try:
        nodes = [*ast.walk(ast.parse(text))]
    except SyntaxError:
        return []
    found: list[tuple[ast.stmt, ast.expr]] = []
    for one in nodes:
        if isinstance(one, ast.Assert):
            found += [(one, test) for test in _parts(one.test, ast.And)]
        elif isinstance(one, ast.If):
            for branch, met in ((one.body, False), (one.orelse, True)):
                parts = _parts(one.test, ast.And if met else ast.Or)
                tests = parts if met else [*map(_opposite, parts)]
                found += [(part, test) for part in branch if _ends(part) for test in tests]
    return found


def _ends(node: ast.stmt) -> bool:
    """Return whether a statement raises, or ends the process, where that is made to raise."""
    call = node.value if isinstance(node, ast.Expr) else None
    return isinstance(node, ast.Raise) or (isinstance(call, ast.Call) and ast.unparse(call.func) in ENDS)


def _parts(test: ast.expr, joined: type[ast.boolop]) -> list[ast.expr]:
    return test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, joined) else [test]


def _compared(test: ast.expr) -> list[ast.expr]:
    """Return the comparisons of a condition: of `free or (rows == 4 and columns == 5)` all three parts."""
    return [one for part in test.values for one in _compared(part)] if isinstance(test, ast.BoolOp) else [test]


def _written_out(test: ast.expr, frame: FrameType) -> ast.expr:
    """Return a condition with what a function of one line returns instead of its call: `a % b == 0` for
    `divisible(a, b)`.
    """
    if not isinstance(test, ast.Call) or test.keywords:
        return test
    try:
        code = _value(test.func, frame).__code__
    except Exception:  # it is not a function, or the authors' code raised
        return test
    functions = _functions("".join(linecache.getlines(code.co_filename)))
    function = functions.get((code.co_firstlineno, code.co_name))
    body = [one for one in function.body if not isinstance(one, ast.Expr)] if function is not None else []
    if function is None or len(function.args.args) != len(test.args):
        return test
    given = {one.arg: value for one, value in zip(function.args.args, test.args, strict=True)}
    answer = body[0].value if len(body) == 1 and isinstance(body[0], ast.Return) else None
    return substituted(answer, given) if answer else test


@lru_cache(maxsize=64)
def _functions(text: str) -> dict[tuple[int, str], ast.FunctionDef]:
    """Return the functions of a file by line and name."""
    try:
        nodes = ast.walk(ast.parse(text))
    except SyntaxError:
        return {}
    return {(one.lineno, one.name): one for one in nodes if isinstance(one, ast.FunctionDef)}


def _opposite(test: ast.expr) -> ast.expr:
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return test.operand
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        parts = [one for part in test.values if not isinstance(one := _opposite(part), ast.Constant)]
        return ast.BoolOp(ast.Or(), parts) if parts else ast.Constant(True)
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and type(test.ops[0]) in _OPPOSITE:
        return ast.Compare(test.left, [_OPPOSITE[type(test.ops[0])]()], test.comparators)
    return ast.Compare(test, [ast.Eq()], [ast.Constant(0)]) if isinstance(test, ast.BinOp) else ast.Constant(True)


def _said(test: ast.expr, frame: FrameType) -> str:
    """Return the sizes of a condition that is not met; empty of other conditions."""
    if not isinstance(test, ast.Compare) or len(test.ops) != 1:
        return ""
    left, right = test.left, test.comparators[0]
    divided = left if isinstance(left, ast.BinOp) and isinstance(left.op, ast.Mod) else None
    sides = (left, right) if divided is None else (divided.left, divided.right)
    try:
        one, other, rest = (_value(side, frame) for side in (*sides, right))
    except Exception:  # whatever the code raises that is computed again
        return ""
    if divided is not None:
        return _remainder(one, other, test.ops[0], rest) if all(map(_is_size, (one, other, rest))) else ""
    if isinstance(test.ops[0], ast.In) and _is_size(one) and isinstance(other, list | tuple | set | frozenset | range):
        sizes = [size for size in other if _is_size(size)][:_MOST]
        return f"asserted {one} in {sizes}" if sizes and one not in other else ""
    if not isinstance(test.ops[0], ast.Eq):
        return ""
    if _is_shape(one) and _is_shape(other) and len(one) != len(other):
        return f"asserted shape {list(one)} == {list(other)}"
    one, other = (tuple(side) if _is_shape(side) else side for side in (one, other))
    pairs = zip(one, other, strict=False) if isinstance(one, tuple) and isinstance(other, tuple) else [(one, other)]
    one, other = next(((a, b) for a, b in pairs if a != b), (None, None))
    return f"asserted {one} == {other}" if _is_size(one) and _is_size(other) else ""


def _remainder(size: int, parts: int, compared: ast.cmpop, rest: int) -> str:
    """Return what a comparison requires of the remainder of a size; empty if it is met, or of other comparisons."""
    if parts > 0 and isinstance(compared, ast.Eq) and size % parts != rest:
        return f"asserted {size} % {parts} == {rest}"
    if parts > 0 and isinstance(compared, ast.NotEq) and size % parts == rest:
        return f"asserted {size} % {parts} != {rest}"
    return ""


def required_shapes(said: str) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Return a shape and the one that it should have been, either way round, as a check describes them."""
    if (found := _SHAPES.search(said)) is None:
        return []
    one, other = (tuple(map(int, filter(None, part.split(",")))) for part in found.groups())
    return [(one, other), (other, one)]


def _is_shape(value: Any) -> bool:
    return isinstance(value, list | tuple) and bool(value) and all(map(_is_size, value))


def _value(node: ast.expr, frame: FrameType) -> Any:
    whole = ast.fix_missing_locations(ast.Expression(node))
    return eval(compile(whole, "<check>", "eval"), frame.f_globals, frame.f_locals)


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
