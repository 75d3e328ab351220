"""The names of code that libcst has read."""

import ast
from collections.abc import Sequence
from functools import cache

import libcst as cst

from omni_kit.pysource.names import Names, of_tree


def tree(node: cst.CSTNode) -> ast.Module:
    """A statement as Python's own syntax tree."""
    return ast.parse(cst.Module([node]).code)  # type: ignore[list-item]


@cache
def names(node: cst.CSTNode) -> Names:
    """What a statement does to names; those that a comprehension or a function binds for itself are left out."""
    return of_tree(tree(node))


def together(nodes: Sequence[cst.CSTNode]) -> Names:
    """What several statements do."""
    found = [names(node) for node in nodes]
    return Names(
        read=frozenset(name for one in found for name in one.read),
        stored=frozenset(name for one in found for name in one.stored),
        attributes=frozenset(name for one in found for name in one.attributes),
        kept=frozenset(name for one in found for name in one.kept),
    )
