"""Determine whether two trees are the same code."""

import ast
from collections.abc import Sequence

from omni_kit.pysource.nodes import FIELDS


def same_code(one: object, two: object) -> bool:
    """Return whether two trees, or lists of trees, are the same code.

    Positions and the spacing of docstrings do not count.
    """
    kind = type(one)
    if kind is not type(two):
        return False
    if kind is list:
        return len(one) == len(two) and all(map(same_code, one, two))  # type: ignore[arg-type,call-overload]
    if kind not in FIELDS:
        return one == two
    if kind is ast.Expr:
        match one, two:
            case ast.Expr(ast.Constant(str(mine))), ast.Expr(ast.Constant(str(theirs))):
                return mine.split() == theirs.split()
    here, there = one.__dict__, two.__dict__
    for name in kind._fields:
        own, other = here.get(name), there.get(name)
        if own is not other and not same_code(own, other):  # names and contexts are one object, mostly
            return False
    return True


def same_statement(one: ast.stmt, lines: Sequence[str], two: ast.stmt, other_lines: Sequence[str]) -> bool:
    """`same_code` of statements, by their lines where these already say so, or those of the statements inside."""
    if type(one) is not type(two):
        return False
    if one.col_offset == two.col_offset and _rows(one, lines) == _rows(two, other_lines):
        return True
    if not hasattr(one, "body"):
        return same_code(one, two)
    for name in one._fields:
        mine, theirs = getattr(one, name, None), getattr(two, name, None)
        if isinstance(mine, list) and isinstance(theirs, list) and mine and isinstance(mine[0], ast.stmt):
            pairs = zip(mine, theirs, strict=False)
            same = len(mine) == len(theirs) and all(same_statement(a, lines, b, other_lines) for a, b in pairs)
        else:
            same = same_code(mine, theirs)
        if not same:
            return False
    return True


def _rows(node: ast.stmt, lines: Sequence[str]) -> Sequence[str]:
    first = min([node.lineno, *(decorator.lineno for decorator in getattr(node, "decorator_list", ()))])
    return lines[first - 1 : node.end_lineno]
