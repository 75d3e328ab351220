"""Keys and values of grouped heads: repeated by the authors for each query head, shared by the kernel here."""

from collections.abc import Sequence
from typing import cast

import libcst as cst

from omni_kit.targets.diffusers.porting.syntax import chain, code
from omni_kit.targets.diffusers.porting.visiting import walk
from omni_kit.upstream.repositories.attention import SDPA

_REPEATED = "repeat_interleave"
_HEADS = ("1", "-3")
_SHARED = cst.Arg(cst.Name("True"), keyword=cst.Name("enable_gqa"), equal=cst.AssignEqual(
    cst.SimpleWhitespace(""), cst.SimpleWhitespace("")
))  # fmt: skip


def with_groups(forward: cst.FunctionDef) -> cst.FunctionDef:
    """Return the function without the repeating, where keys and values are repeated alike and go nowhere else."""
    calls = [one for one in walk(forward) if isinstance(one, cst.Call) and chain(one.func).endswith(SDPA)]
    given = calls[0].args if len(calls) == 1 else ()
    if len(given) < 3 or any(one.keyword is not None or one.star for one in given[:3]):
        return forward
    statements = list(forward.body.body)
    repeats = [_repeat(one.value, statements) for one in given[1:3]]
    if any(one is None for one in repeats) or len({one.times for one in repeats if one is not None}) != 1:
        return forward
    found = [one for one in repeats if one is not None]
    args = [one.with_changes(value=by.inner) for one, by in zip(given[1:3], found, strict=True)]
    call = calls[0].with_changes(args=[given[0], *args, *given[3:], _SHARED])
    gone = [one.statement for one in found if one.statement is not None]
    kept = [one for one in statements if not any(one is other for other in gone)]
    left = forward.with_changes(body=forward.body.with_changes(body=kept))
    return cast(cst.FunctionDef, left.deep_replace(cast(cst.CSTNode, calls[0]), cast(cst.CSTNode, call)))


class _Repeat:
    """Something repeated: what, how often as written, and the statement that does it, if one does."""

    def __init__(self, inner: cst.BaseExpression, times: str, statement: cst.CSTNode | None) -> None:
        self.inner, self.times, self.statement = inner, times, statement


def _repeat(value: cst.BaseExpression, statements: Sequence[cst.CSTNode]) -> _Repeat | None:
    if isinstance(value, cst.Call):
        return _repeated(value, None)
    for place, one in enumerate(statements):
        small = one.body[0] if isinstance(one, cst.SimpleStatementLine) and len(one.body) == 1 else None
        if (
            not isinstance(small, cst.Assign)
            or not isinstance(small.value, cst.Call)
            or not isinstance(value, cst.Name)
        ):
            continue
        if [chain(target.target) for target in small.targets] == [value.value]:
            found = _repeated(small.value, one)
            behind = sum(_mentions(other, value.value) for other in statements[place + 1 :])
            if found is not None and chain(found.inner) == value.value and behind == 1:
                return found
    return None


def _repeated(call: cst.Call, statement: cst.CSTNode | None) -> _Repeat | None:
    """`k` and `n` of `k.repeat_interleave(n, dim=1)`, heads standing in front of tokens."""
    if not isinstance(call.func, cst.Attribute) or call.func.attr.value != _REPEATED:
        return None
    inner, given = call.func.value, list(call.args)
    if chain(inner) == "torch" and given:
        inner, given = given[0].value, given[1:]
    axis = given[1] if len(given) == 2 else None
    if axis is None or code(axis.value) not in _HEADS or (axis.keyword is not None and axis.keyword.value != "dim"):
        return None
    return _Repeat(inner, code(given[0].value), statement) if given[0].keyword is None else None


def _mentions(node: cst.CSTNode, name: str) -> int:
    return sum(isinstance(one, cst.Name) and one.value == name for one in walk(node))
