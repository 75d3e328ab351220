"""Arguments of a forward that mask latents or padding, and so are not the attention mask of a prompt."""

import ast
from collections.abc import Iterable

_MASK, _PADDING = "mask", "key_padding_mask"
_FILLS = ("masked_fill", "masked_fill_")
_TURNS = ("logical_not", "eq", "ne", "lt")


def masks_of_latents(forward: ast.FunctionDef, arguments: Iterable[str]) -> frozenset[str]:
    """Return of these arguments the masks by which forward multiplies what is none of the other arguments as it is:
    `x * mask`, itself or under another name, and not `context * mask`.
    """
    names = [*arguments]
    return frozenset(name for name in names if _MASK in name and _multiplied(forward, name, {*names[1:]} - {name}))


def masks_of_padding(forward: ast.FunctionDef, arguments: Iterable[str]) -> frozenset[str]:
    """Return of these arguments the masks that are true where nothing counts: `x.masked_fill(mask[:, None], 0)`,
    `attend(x, key_padding_mask=mask)`. In diffusers, a prompt's mask is true for words.
    """
    calls = [one for one in ast.walk(forward) if isinstance(one, ast.Call)]
    filled = (one.args[0] for one in calls if one.args and ast.unparse(one.func).rpartition(".")[2] in _FILLS)
    padding = (word.value for one in calls for word in one.keywords if word.arg == _PADDING)
    roots = {root.id for one in (*filled, *padding) if isinstance(root := _root(one), ast.Name)}
    changed = {one.id for one in ast.walk(forward) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}
    return frozenset(name for name in arguments if _MASK in name and name in roots - changed)


def _root(node: ast.expr) -> ast.expr:
    """Return what is turned and viewed: `mask` of `mask.bool()[:, None]`."""
    while isinstance(node, ast.Attribute | ast.Subscript) or (isinstance(node, ast.Call) and _is_method(node)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node


def _is_method(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr not in _TURNS


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
