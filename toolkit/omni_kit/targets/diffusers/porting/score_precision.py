"""Attention that authors compute in float32, under a condition or in any case: kernels sum up in float32, too."""

import ast
from collections.abc import Iterator, Sequence

_AUTOCAST = "autocast"
_CASTS = ("{0}.float()", "{0}.to(torch.float32)", "{0}.to(dtype=torch.float32)")


def in_any_precision(body: Sequence[ast.stmt]) -> list[ast.stmt]:
    """Return statements without casts to float32 where autocast is switched off for them, and without the condition
    under which they are cast if the other branch is the same but for the casts; variables are not deleted.
    """
    found: list[ast.stmt] = []
    for one in body:
        if isinstance(one, ast.If) and one.orelse:
            branches = [list(_uncast(branch)) for branch in (one.body, one.orelse)]
            first, second = (list(map(ast.unparse, branch)) for branch in branches)
            found += branches[0] if first == second else [one]
        elif _switches_off(one):
            found += _uncast([one])
        elif not isinstance(one, ast.Delete) or not all(isinstance(name, ast.Name) for name in one.targets):
            found.append(one)
    return found


def _uncast(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements of a body, with those of blocks without autocast but for casts of variables to float32."""
    for one in body:
        if isinstance(one, ast.With) and _switches_off(one):
            yield from (inner for inner in _uncast(one.body) if not _casts(inner))
        else:
            yield one


def _switches_off(node: ast.stmt) -> bool:
    """Return whether a statement is `with torch.autocast(enabled=False):`, on whatever device."""
    calls = [one.context_expr for one in node.items] if isinstance(node, ast.With) else []
    return bool(calls) and all(
        isinstance(call, ast.Call) and ast.unparse(call.func).endswith(_AUTOCAST)
        and any(word.arg == "enabled" and ast.unparse(word.value) == "False" for word in call.keywords)
        for call in calls
    )  # fmt: skip


def _casts(node: ast.stmt) -> bool:
    """Return whether a statement casts variables to float32, each to itself: `q, k = q.float(), k.float()`."""
    if not isinstance(node, ast.Assign) or len(node.targets) != 1:
        return False
    targets, values = ([*one.elts] if isinstance(one, ast.Tuple) else [one] for one in (node.targets[0], node.value))
    names = [one.id if isinstance(one, ast.Name) else "" for one in targets]
    return len(names) == len(values) and all(
        name and ast.unparse(value) in [cast.format(name) for cast in _CASTS]
        for name, value in zip(names, values, strict=True)
    )
