"""Alignment of the statements of two versions."""

import ast
from collections.abc import Sequence
from difflib import SequenceMatcher

from omni_kit.patchgen.upgrade.code import dump, dumps, likeness

_LIKE = 0.6
_SAME_BUT_FOR_TARGET = 0.85
_Definition = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def align(base: Sequence[ast.stmt], other: Sequence[ast.stmt], *, loosely: bool = False) -> dict[int, int]:
    """Index in `base` to index in `other`, in order: equal statements, and between them the pairs most alike.

    Args:
        loosely: assignments to other names are versions of one, too, where their form is the same.
    """
    pairs: dict[int, int] = {}
    blocks = SequenceMatcher(None, dumps(base), dumps(other), autojunk=False).get_matching_blocks()
    start = there = 0
    for block in blocks:
        pairs.update(_alike(base, range(start, block.a), other, range(there, block.b), loosely))
        pairs.update({block.a + step: block.b + step for step in range(block.size)})
        start, there = block.a + block.size, block.b + block.size
    return pairs


def _alike(
    base: Sequence[ast.stmt], here: range, other: Sequence[ast.stmt], there: range, loosely: bool
) -> dict[int, int]:
    """Return the pairs in order whose likeness adds up to most."""
    if not here or not there:
        return {}
    best: dict[tuple[int, int], tuple[float, tuple[tuple[int, int], ...]]] = {}
    for i in range(len(here), -1, -1):
        for j in range(len(there), -1, -1):
            if i == len(here) or j == len(there):
                best[i, j] = 0.0, ()
                continue
            choice = max(best[i + 1, j], best[i, j + 1], key=lambda one: one[0])
            like = pairing(base[here[i]], other[there[j]], loosely=loosely)
            score, pairs = best[i + 1, j + 1]
            if like >= _LIKE and score + like > choice[0]:
                choice = score + like, ((here[i], there[j]), *pairs)
            best[i, j] = choice
    return dict(best[0, 0][1])


def assignment(node: ast.stmt) -> tuple[ast.expr, ast.expr] | None:
    """(target, value) of an assignment to one target, annotated or not."""
    match node:
        case ast.Assign(targets=[target], value=value):
            return target, value
        case ast.AnnAssign(target=target, value=ast.expr() as value):
            return target, value
    return None


def _same_attribute(one: ast.expr, other: ast.expr) -> bool:
    """Return whether two targets are one attribute of locals."""
    match one, other:
        case ast.Attribute(value=ast.Name(), attr=was), ast.Attribute(value=ast.Name(), attr=now):
            return was == now
    return False


def pairing(one: ast.stmt, other: ast.stmt, *, loosely: bool = False) -> float:
    """Return how likely two statements are versions of one, from 0 to 1."""
    assigned = assignment(one), assignment(other)
    if assigned[0] is not None and assigned[1] is not None:
        targets = assigned[0][0], assigned[1][0]
        same = dump(targets[0]) == dump(targets[1]) or (loosely and _same_attribute(*targets))
        like = likeness(assigned[0][1], assigned[1][1])
        if same:
            return max(like, 0.6 + 0.4 * like)
        like = likeness(one, other)
        return like if loosely or like >= _SAME_BUT_FOR_TARGET else 0.0
    if type(one) is not type(other):
        return 0.0
    if isinstance(one, _Definition):
        return 1.0 if one.name == other.name else 0.0  # type: ignore[attr-defined]
    like = likeness(one, other)
    match one, other:
        case ast.Return(), ast.Return():
            return max(like, 0.6)
        case ((ast.If(test=test) | ast.While(test=test)), (ast.If(test=other_test) | ast.While(test=other_test))):
            return max(like, 0.65) if dump(test) == dump(other_test) else like
        case ast.For(iter=iterated), ast.For(iter=others) if dump(iterated) == dump(others):
            return max(like, 0.65)
    return like
