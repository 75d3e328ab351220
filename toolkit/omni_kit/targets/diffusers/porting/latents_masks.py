"""Masks of latents among the arguments of a forward, which multiplies by them."""

import ast
from collections.abc import Iterable

_MASK = "mask"


def masks_of_latents(forward: ast.FunctionDef, arguments: Iterable[str]) -> frozenset[str]:
    """Return of these arguments the masks by which forward multiplies what is none of the other arguments as it is:
    `x * mask`, itself or under another name, and not `context * mask`.
    """
    names = [*arguments]
    return frozenset(name for name in names if _MASK in name and _multiplied(forward, name, {*names[1:]} - {name}))


def _multiplied(forward: ast.FunctionDef, name: str, others: set[str]) -> bool:
    own = {name}
    for node in ast.walk(forward):
        if isinstance(node, ast.Assign) and _names(node.value) and _names(node.value) <= own | {"torch"}:
            own |= {one.id for target in node.targets for one in ast.walk(target) if isinstance(one, ast.Name)}
    products = (one for one in ast.walk(forward) if isinstance(one, ast.BinOp) and isinstance(one.op, ast.Mult))
    pairs = ((_names(one.left), _names(one.right)) for one in products)
    return any(by & own and what and not what & (own | others) for pair in pairs for what, by in (pair, pair[::-1]))


def _names(node: ast.expr) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
