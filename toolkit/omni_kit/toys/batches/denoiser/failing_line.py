"""The statement of a model's own code at which a call fails, and what it reads."""

import ast
import inspect
import re
import textwrap
from functools import lru_cache
from itertools import islice
from types import CodeType
from typing import Any

# A condition on the number of dimensions.
_RANK = re.compile(r"(?:len\()?\b(\w+)\.(?:ndim|dim\(\)|shape\)) == (\d)")


def read_at(model: Any, lines: tuple[int, ...], only: str = "") -> set[str]:
    """Return what the statements at the lines of a model's methods read, and what that was computed from.

    Args:
        only: the one name that they read which counts.
    """
    found: set[str] = set()
    for line in filter(None, lines):
        code = _code_around(model, line)
        found |= _read_in(code, line, only) if code is not None else set()
    return found


def _read_in(code: CodeType, line: int, only: str) -> set[str]:
    lines, first = inspect.getsourcelines(code)
    tree = ast.parse(textwrap.dedent("".join(lines)))
    statements = [one for one in ast.walk(tree) if isinstance(one, ast.stmt)]
    there = [one for one in statements if one.lineno <= line - first + 1 <= (one.end_lineno or 0)]
    inner = min(there, key=lambda one: (one.end_lineno or 0) - one.lineno, default=None)
    read = {only} if only else _names(inner, ast.Load) if inner is not None else set()
    before = [one for one in statements if inner is not None and one.lineno < inner.lineno]
    for one in sorted(before, key=lambda one: -one.lineno):
        if isinstance(one, ast.Assign | ast.AugAssign | ast.AnnAssign) and _names(one, ast.Store) & read:
            read |= _names(one, ast.Load)
    return read


def guards(model: Any, lines: tuple[int, ...], variable: str) -> dict[str, int]:
    """Return the number of dimensions of each name that a condition needs before a variable gets its value.

    Args:
        lines: at one of which the variable is read.
    """
    found: dict[str, int] = {}
    for code in filter(None, (_code_around(model, line) for line in lines if line)):
        for one in ast.walk(ast.parse(textwrap.dedent("".join(inspect.getsourcelines(code)[0])))):
            if isinstance(one, ast.If) and any(variable in _names(part, ast.Store) for part in one.body):
                found |= {name: int(count) for name, count in _RANK.findall(ast.unparse(one.test))}
    return found


def _code_around(model: Any, line: int) -> CodeType | None:
    """Return the method of a model in which a line stands."""
    around = (one for one in _methods(model).values() if one.co_firstlineno <= line)
    return max(around, key=lambda one: one.co_firstlineno, default=None)


def _names(node: ast.AST, context: type[ast.expr_context]) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, context)}


def lines_of(model: Any, error: BaseException) -> tuple[int, int]:
    """Return the line of the model's own forward up to which it was read when an error came, 0 where it was not begun;
    and that of the method of the model that it called there, 0 where it called none.

    Of a call over several lines that is its last one: what computes its arguments stands before.
    """
    methods = _methods(model)
    found: list[int] = []
    place = error.__traceback__
    while place is not None:
        code = place.tb_frame.f_code
        if methods.get(code.co_name) is code and (found or code is methods["forward"]):
            _, last, _, _ = next(islice(code.co_positions(), place.tb_lasti // 2, None))
            found.append(last or place.tb_lineno)
        place = place.tb_next
    forward, inner, *_ = (*found, 0, 0)
    return forward, inner


def _methods(model: Any) -> dict[str, CodeType]:
    cls: Any = type(model)
    return _methods_of(cls)


@lru_cache(maxsize=8)
def _methods_of(cls: Any) -> dict[str, CodeType]:
    """Return the methods of a model's class that stand in the file of its forward, by their names."""
    forward = inspect.unwrap(cls.forward).__code__
    names = (name for name in dir(cls) if not name.startswith("__"))
    codes = (getattr(inspect.unwrap(one), "__code__", None) for name in names if (one := getattr(cls, name)))
    own = {one.co_name: one for one in codes if one is not None and one.co_filename == forward.co_filename}
    return {**own, "forward": forward}
