"""Locals that a copy calls otherwise than the original, found by the lines that are the same but for them."""

import ast
import re
from collections import Counter
from collections.abc import Mapping
from functools import partial

from omni_checkers.engine.files import rebuilt, walked
from omni_checkers.symbolic.alterations import Copy
from omni_checkers.symbolic.lines import parameters


def renamed(one: Copy) -> Copy:
    """The copy with the original's names for its locals, as far as lines show which are meant; lines keep their places.

    Two locals are one where a long line that reads one, and one of the original that reads the other, are the same.
    """
    while names := _meant(one):
        one = Copy(rebuilt(one.ours, partial(_with, names)), one.theirs)
    return one


def _meant(one: Copy) -> dict[str, str]:
    """What locals of the copy are called in the original, each once."""
    mine, original = _own_names(one.ours, one.theirs), _own_names(one.theirs, one.ours)
    if not mine or not original:
        return {}
    here, there = {line.code for line in one.mine}, {line.code for line in one.original}
    lost = {line.code for line in one.original if line.code not in here}
    found: Counter[tuple[str, str]] = Counter()
    for line in one.mine:
        if line.code not in there and line.long:
            for name in mine & _words(line.code):
                found.update((name, other) for other in original if re.sub(rf"\b{name}\b", other, line.code) in lost)
    names: dict[str, str] = {}
    for (name, other), _ in found.most_common():
        if name not in names and other not in names.values():
            names[name] = other
    return names


def _own_names(function: ast.FunctionDef, other: ast.FunctionDef) -> set[str]:
    """The locals of a function that the other does not speak of."""
    stored = {n.id for n in walked(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    spoken = {n.id for n in walked(other) if isinstance(n, ast.Name)} | parameters(other)
    return stored - spoken - parameters(function)


def _words(code: str) -> set[str]:
    return set(re.findall(r"\w+", code))


def _with(names: Mapping[str, str], node: ast.AST) -> ast.AST | None:
    if isinstance(node, ast.Name) and node.id in names:
        return ast.copy_location(ast.Name(names[node.id], node.ctx), node)
    return None
