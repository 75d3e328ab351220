"""The names of code that libcst has read."""

import ast
from collections.abc import Sequence
from functools import cache

import libcst as cst

from omni_kit.pysource.names import Names, of_tree


def tree(node: cst.CSTNode) -> ast.Module:
    """Return a statement as Python's own syntax tree."""
    return ast.parse(cst.Module([node]).code)  # type: ignore[list-item]


@cache
def names(node: cst.CSTNode) -> Names:
    """Return the names that a statement reads and binds, without those local to a comprehension or a function."""
    return of_tree(tree(node))


def together(nodes: Sequence[cst.CSTNode]) -> Names:
    """Return the names that several statements read and bind."""
    found = [names(node) for node in nodes]
    return Names(
        read=frozenset(name for one in found for name in one.read),
        stored=frozenset(name for one in found for name in one.stored),
        attributes=frozenset(name for one in found for name in one.attributes),
        kept=frozenset(name for one in found for name in one.kept),
    )
