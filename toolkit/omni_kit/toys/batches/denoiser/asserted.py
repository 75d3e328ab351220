"""The sizes that a failed assertion had compared."""

import ast
import linecache
from types import TracebackType
from typing import Any


def asserted(error: BaseException) -> str:
    """Return `asserted 64 == 1024` for an assertion that two sizes are equal, or two shapes; empty for other errors.

    Of two shapes these are the first two sizes that differ. Both sides are computed again where the assertion stands.
    """
    place = error.__traceback__ if isinstance(error, AssertionError) else None
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    compared = _comparison(place) if place is not None else None
    if place is None or compared is None:
        return ""
    try:
        left, right = (eval(compile(ast.Expression(one), "<assertion>", "eval"), place.tb_frame.f_globals,
                            place.tb_frame.f_locals) for one in (compared.left, compared.comparators[0]))  # fmt: skip
    except Exception:  # whatever the code raises that is computed again
        return ""
    pairs = zip(left, right, strict=False) if isinstance(left, tuple) and isinstance(right, tuple) else [(left, right)]
    one, other = next(((a, b) for a, b in pairs if a != b), (None, None))
    return f"asserted {one} == {other}" if _is_size(one) and _is_size(other) else ""


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _comparison(place: TracebackType) -> ast.Compare | None:
    """The comparison by `==` that an assertion at a place makes."""
    code, line = place.tb_frame.f_code, place.tb_lineno
    try:
        tree = ast.parse("".join(linecache.getlines(code.co_filename, place.tb_frame.f_globals)))
    except SyntaxError:
        return None
    found = [
        one for one in ast.walk(tree) if isinstance(one, ast.Assert) and one.lineno <= line <= (one.end_lineno or 0)
    ]
    parts = [part for one in found for part in (one.test.values if isinstance(one.test, ast.BoolOp) else [one.test])]
    equal = [
        one for one in parts if isinstance(one, ast.Compare) and len(one.ops) == 1 and isinstance(one.ops[0], ast.Eq)
    ]
    return equal[0] if equal else None
