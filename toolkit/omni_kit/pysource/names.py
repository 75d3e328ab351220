"""Names that a piece of code reads and assigns, as a function sees them."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from omni_kit.pysource.source import dotted

_SCOPES = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.Lambda, ast.FunctionDef)


@dataclass(frozen=True)
class Names:
    """Names read and assigned by a piece of code.

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


def of_tree(found: ast.AST) -> Names:
    """Return the names of a syntax tree, without those that a comprehension or a function binds for itself."""
    marks = list(marked(found, frozenset()))
    own = [node for node in ast.walk(found) if isinstance(node, ast.Attribute) and dotted(node.value) == "self"]
    return Names(
        frozenset(name for name, stored in marks if not stored),
        frozenset(name for name, stored in marks if stored),
        frozenset(node.attr for node in own),
        frozenset(node.attr for node in own if isinstance(node.ctx, ast.Store)),
    )


def marked(node: ast.AST, bound: frozenset[str] = frozenset()) -> Iterator[tuple[str, bool]]:
    """Yield each name of the function's own and whether it is assigned there, in the order in which Python evaluates
    them.
    """
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
    children = list(ast.iter_child_nodes(node))
    if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.For)):  # the value is there before the target
        first = node.iter if isinstance(node, ast.For) else node.value
        children.sort(key=lambda child: child is not first)
    for child in children:
        yield from marked(child, bound)


def own_names(node: ast.AST) -> frozenset[str]:
    """Return the names that a comprehension, a lambda or a function binds for itself."""
    if isinstance(node, (ast.Lambda, ast.FunctionDef)):
        given = node.args
        every = [*given.posonlyargs, *given.args, *given.kwonlyargs, *filter(None, (given.vararg, given.kwarg))]
        inner = node.body if isinstance(node, ast.FunctionDef) else []
        marks = (mark for one in inner for mark in marked(one))
        return frozenset(one.arg for one in every) | frozenset(name for name, stored in marks if stored)
    targets = (one.target for one in getattr(node, "generators", ()))
    return frozenset(one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name))
