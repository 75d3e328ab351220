"""The same parts in another order, where the order means something."""

import ast
from collections import Counter
from collections.abc import Collection, Iterator
from typing import TypeGuard

from omni_checkers.engine.files import rebuilt, walked
from omni_checkers.symbolic.axes import said_alike

COMMUTING = (ast.Add, ast.Mult, ast.BitOr, ast.BitAnd)
_SYMMETRIC = (ast.Eq, ast.NotEq, ast.Is, ast.IsNot)
# They give back the values that they are called on, wherever in a chain they stand.
SAME_VALUES = frozenset({"contiguous", "clone", "cpu", "detach", "to"})


def rearranged(ours: ast.AST, theirs: ast.AST) -> bool:
    """Whether two statements are made of the same names, numbers and operations, and are not the same.

    What may be turned round is not looked at: terms, factors, conditions, keywords, two assignments in one.
    """
    return _parts(ours) == _parts(theirs) and _ordered(ours) != _ordered(theirs)


def same_values(ours: ast.AST, theirs: ast.AST) -> bool:
    """Whether two statements differ only in copies, casts, keywords, how axes are said and what may be turned round."""
    if _ordered(ours) == _ordered(theirs):
        return True
    theirs = said_alike(ours, theirs)
    if _ordered(ours) == _ordered(theirs):
        return True
    named = {node.arg for tree in (ours, theirs) for node in walked(tree) if _says_twice(node)}
    return bool(named) and len({_ordered(_Named(named).visit(rebuilt(tree))) for tree in (ours, theirs)}) == 1


def _says_twice(node: ast.AST) -> TypeGuard[ast.keyword]:
    """Whether an argument is given by the name that it has: `mask=mask`."""
    return isinstance(node, ast.keyword) and isinstance(node.value, ast.Name) and node.arg == node.value.id


class _Named(ast.NodeTransformer):
    """Arguments by their place become arguments by name, where they are called as those of the other tree."""

    def __init__(self, names: Collection[str | None]) -> None:
        self._names = names

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        moved = [one for one in node.args if isinstance(one, ast.Name) and one.id in self._names]
        kept = [one for one in node.args if one not in moved]
        return ast.Call(node.func, kept, [*(ast.keyword(one.id, one) for one in moved), *node.keywords])


def _parts(node: ast.AST) -> Counter[str]:
    return Counter(_part(inner) for inner in walked(node) if not isinstance(inner, ast.expr_context))


def _part(node: ast.AST) -> str:
    match node:
        case ast.Name(name) | ast.Attribute(_, name) | ast.keyword(name):
            return f"{type(node).__name__} {name}"
        case ast.Constant(value):
            return f"constant {value!r}"
    return type(node).__name__


def _ordered(node: object) -> str:
    """A text that two trees share if they differ only in what may be turned round."""
    match node:
        case ast.BinOp(_, op, _) if isinstance(op, COMMUTING):
            return f"({f' {type(op).__name__} '.join(sorted(map(_ordered, _operands(node, type(op)))))})"
        case ast.BoolOp(op, values):
            return f"({f' {type(op).__name__} '.join(sorted(map(_ordered, values)))})"
        case ast.Compare(left, [op], [right]) if isinstance(op, _SYMMETRIC):
            return f"({f' {type(op).__name__} '.join(sorted((_ordered(left), _ordered(right))))})"
        case ast.Call(ast.Attribute(inner, name)) if name in SAME_VALUES:
            return _ordered(inner)
        case ast.Call(function, args, keywords):
            return f"{_ordered(function)}({_ordered(args)}; {sorted(map(_ordered, keywords))})"
        case ast.Dict(keys, values):
            return f"{{{sorted(zip(map(_ordered, keys), map(_ordered, values), strict=True))}}}"
        case ast.Assign([ast.Tuple(targets)], ast.Tuple(values)) if len(targets) == len(values):
            return f"{sorted(zip(map(_ordered, targets), map(_ordered, values), strict=True))}"
        case ast.expr_context() | None:
            return ""
        case ast.AST():
            return f"{type(node).__name__}({', '.join(_ordered(getattr(node, field, None)) for field in node._fields)})"
        case list():
            return f"[{', '.join(map(_ordered, node))}]"
    return repr(node)


def _operands(node: ast.AST, kind: type[ast.operator]) -> Iterator[ast.AST]:
    """The terms of a sum, the factors of a product."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, kind):
        yield from _operands(node.left, kind)
        yield from _operands(node.right, kind)
    else:
        yield node
