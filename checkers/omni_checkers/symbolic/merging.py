"""Steps that a copy takes in one statement and the original in several, or the other way round."""

import ast
from collections.abc import Iterator, Sequence
from functools import partial

from omni_checkers.engine.files import rebuilt, walked
from omni_checkers.symbolic.alterations import Copy
from omni_checkers.symbolic.arrangement import rearranged
from omni_checkers.symbolic.lines import Line, names_read
from omni_checkers.symbolic.spelling import SHAPES, plain

_FEW = 3
# What may stand before or behind a step that is taken for each element.
_ANYWHERE = SHAPES | {"bfloat16", "contiguous", "expand", "float", "half", "to", "type_as", "unflatten", "view"}


def nested_otherwise(one: Copy) -> Iterator[tuple[Line, Line]]:
    """The last of a few lines that are made of the same parts as a few of the original, in another order of steps.

    Steps that only give the same values another shape may stand anywhere; where there are some, nothing is said.
    """
    for mine, original in one.rewritten_blocks():
        if len(mine) == len(original) or max(len(mine), len(original)) > _FEW:
            continue
        ours, theirs = _as_one(mine), _as_one(original)
        if ours is not None and theirs is not None and rearranged(plain(ours), plain(theirs)):
            yield mine[-1], original[-1]


def _as_one(lines: Sequence[Line]) -> ast.Assign | None:
    """Assignments, each of what the next one reads, as one; None where they are anything else, or turn shapes."""
    values: dict[str, ast.expr] = {}
    target = ""
    for line in lines:
        match line.node:
            case ast.Assign([ast.Name(name)], value) if not values or target in names_read(value):
                values[name] = rebuilt(value, partial(_given, dict(values)))
                target = name
            case _:
                return None
    shaped = any(isinstance(node, ast.Attribute) and node.attr in _ANYWHERE for node in walked(values[target]))
    return None if shaped else ast.Assign([ast.Name(target, ast.Store())], values[target], lineno=lines[-1].number)


def _given(values: dict[str, ast.expr], node: ast.AST) -> ast.AST | None:
    return values.get(node.id) if isinstance(node, ast.Name) else None
