"""Axes and sizes that two statements say in different ways, and that may be the same."""

import ast

from omni_checkers.engine.files import rebuilt

# Their arguments are sizes, one of which may be left to be worked out.
_SIZES = frozenset({"reshape", "view"})
# Some of their arguments are axes, and no other argument of theirs is a number below zero.
_AXES = frozenset({
    "all", "amax", "amin", "any", "argmax", "argmin", "argsort", "cat", "chunk", "cumsum", "diff", "flatten", "flip",
    "gather", "index_select", "mean", "movedim", "norm", "permute", "prod", "repeat_interleave", "scatter", "select",
    "size", "softmax", "sort", "split", "squeeze", "stack", "std", "sum", "topk", "transpose", "unbind", "unflatten",
    "unsqueeze", "var",
})  # fmt: skip
_NAMES = frozenset({"axis", "dim", "dim0", "dim1", "dims"})
_WORKED_OUT = -1


def said_alike(ours: ast.AST, theirs: ast.AST) -> ast.AST:
    """`theirs`, with the axes and sizes that may be the same said as `ours` says them.

    These may be the same: an axis counted from the front, and one counted from the back, of a tensor with two axes or
    more; a size, and one that is left to be worked out; tensors in a list, and the same in a tuple.
    """
    made = rebuilt(theirs)
    _align(ours, made)
    return made


def _align(ours: object, theirs: object) -> None:
    """Changes `theirs` as far as the two are built alike."""
    if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for one, other in zip(ours, theirs, strict=True):
            _align(one, other)
    elif isinstance(ours, ast.AST) and type(ours) is type(theirs):
        if isinstance(ours, ast.Call) and isinstance(theirs, ast.Call):
            _align_call(ours, theirs)
        for field in ours._fields:
            _align(getattr(ours, field, None), getattr(theirs, field, None))


def _align_call(ours: ast.Call, theirs: ast.Call) -> None:
    name = ours.func.attr if isinstance(ours.func, ast.Attribute) else ""
    if len(ours.args) == len(theirs.args):
        pairs = list(enumerate(zip(ours.args, theirs.args, strict=True)))
        other = [place for place, (one, other) in pairs if ast.dump(one) != ast.dump(other)]
        for place, (one, there) in pairs:
            size = name in _SIZES and other == [place] and _WORKED_OUT in (_number(one), _number(there))
            if size or (name in _AXES and (_same_axis(one, there) or _same_tensors(one, there))):
                theirs.args[place] = one
    named = {keyword.arg: keyword.value for keyword in ours.keywords}
    for keyword in theirs.keywords:
        if keyword.arg in _NAMES and keyword.arg in named and _same_axis(named[keyword.arg], keyword.value):
            keyword.value = named[keyword.arg]


def _same_axis(one: ast.expr, other: ast.expr) -> bool:
    """Whether there is a number of axes, two or more, with which both are the same one."""
    back, front = sorted(number for number in map(_number, (one, other)) if number is not None) or (0, 0)
    return back < 0 <= front and front - back > 1


def _same_tensors(one: ast.expr, other: ast.expr) -> bool:
    """Whether one is a list and the other a tuple of the same."""
    match one, other:
        case (ast.List(ours), ast.Tuple(theirs)) | (ast.Tuple(ours), ast.List(theirs)):
            return ast.dump(ast.Tuple(ours)) == ast.dump(ast.Tuple(theirs))
    return False


def _number(node: ast.expr) -> int | None:
    match node:
        case ast.UnaryOp(ast.USub(), ast.Constant(int(value))):
            return -value
        case ast.Constant(int(value)):
            return value
    return None
