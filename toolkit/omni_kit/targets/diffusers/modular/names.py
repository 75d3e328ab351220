"""Which names a piece of code reads and which it assigns, as a function sees them."""

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import libcst as cst

from omni_kit.pysource.source import dotted

_SCOPES = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.Lambda, ast.FunctionDef)


@dataclass(frozen=True)
class Names:
    """What a piece of code does to names.

    Attributes:
        read: names that it reads, also those of the module.
        stored: names that it assigns.
        attributes: `x` of `self.x`, read or assigned.
        kept: `x` of `self.x = ...`.
    """

    read: frozenset[str]
    stored: frozenset[str]
    attributes: frozenset[str]
    kept: frozenset[str]

    @property
    def all(self) -> frozenset[str]:
        """Every name that occurs."""
        return self.read | self.stored


def tree(node: cst.CSTNode) -> ast.Module:
    """A statement as Python's own syntax tree."""
    return ast.parse(cst.Module([node]).code)  # type: ignore[list-item]


@cache
def names(node: cst.CSTNode) -> Names:
    """What a statement does to names; those that a comprehension or a function binds for itself are left out."""
    return of_tree(tree(node))


def of_tree(found: ast.AST) -> Names:
    """As `names`, of a syntax tree."""
    marks = list(_marks(found, frozenset()))
    own = [node for node in ast.walk(found) if isinstance(node, ast.Attribute) and dotted(node.value) == "self"]
    return Names(
        frozenset(name for name, stored in marks if not stored),
        frozenset(name for name, stored in marks if stored),
        frozenset(node.attr for node in own),
        frozenset(node.attr for node in own if isinstance(node.ctx, ast.Store)),
    )


def together(nodes: Sequence[cst.CSTNode]) -> Names:
    """What several statements do."""
    found = [names(node) for node in nodes]
    return Names(
        read=frozenset(name for one in found for name in one.read),
        stored=frozenset(name for one in found for name in one.stored),
        attributes=frozenset(name for one in found for name in one.attributes),
        kept=frozenset(name for one in found for name in one.kept),
    )


def _marks(node: ast.AST, bound: frozenset[str]) -> Iterator[tuple[str, bool]]:
    """Each name of the function's own, and whether it is assigned there."""
    if isinstance(node, ast.Name):
        if node.id not in bound:
            yield node.id, not isinstance(node.ctx, ast.Load)
        return
    if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name) and node.target.id not in bound:
        yield node.target.id, False
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        yield node.name, True
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        yield from ((alias.asname or alias.name.partition(".")[0], True) for alias in node.names)
    if isinstance(node, _SCOPES):
        bound |= own_names(node)
    for child in ast.iter_child_nodes(node):
        yield from _marks(child, bound)


def own_names(node: ast.AST) -> frozenset[str]:
    """The names that a comprehension, a lambda or a function binds for itself."""
    if isinstance(node, (ast.Lambda, ast.FunctionDef)):
        given = node.args
        every = [*given.posonlyargs, *given.args, *given.kwonlyargs, *filter(None, (given.vararg, given.kwarg))]
        inner = node.body if isinstance(node, ast.FunctionDef) else []
        marks = (mark for one in inner for mark in _marks(one, frozenset()))
        return frozenset(one.arg for one in every) | frozenset(name for name, stored in marks if stored)
    targets = (one.target for one in getattr(node, "generators", ()))
    return frozenset(one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name))
