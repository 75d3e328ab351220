"""Batched model inputs reduced to one picture: an expression without the code that only repeats it."""

import ast
from collections.abc import Mapping

_REPEATS = frozenset({
    "expand", "repeat", "expand_as", "unsqueeze", "squeeze", "contiguous", "view", "reshape", "type_as", "clone",
    "detach",
})  # fmt: skip
_ONES = frozenset({"ones", "new_ones", "ones_like"})
_FULL = frozenset({"full", "full_like"})
_REAL = frozenset({
    *_ONES, "full_like", "new_full", "new_tensor", "type_as", "float", "double", "half", "bfloat16", "dtype",
    "float16", "float32", "float64",
})  # fmt: skip
_JOINS = frozenset({"cat", "concat", "stack"})
_LISTED = frozenset({"tensor", "as_tensor"})


def of_one(node: ast.expr, assigned: Mapping[str, ast.expr]) -> ast.expr | None:
    """Return the step that one picture is told; None for a factor of one.

    Args:
        assigned: variables that stand for what is repeated, and what that is.
    """
    match node:
        case ast.Name() if node.id in assigned:
            return of_one(assigned[node.id], {name: one for name, one in assigned.items() if name != node.id})
        case ast.BinOp(op=ast.Mult()):
            left, right = of_one(node.left, assigned), of_one(node.right, assigned)
            return right if left is None else left if right is None else ast.BinOp(left, node.op, right)
        case ast.BinOp():
            left, right = of_one(node.left, assigned), of_one(node.right, assigned)
            return ast.BinOp(left or ast.Constant(1.0), node.op, right or ast.Constant(1.0))
        case ast.UnaryOp():
            return ast.UnaryOp(node.op, of_one(node.operand, assigned) or ast.Constant(1.0))
        case ast.Subscript() if _is_new_axis(node.slice):
            return of_one(node.value, assigned)
        case ast.List() | ast.Tuple() if node.elts:
            return of_one(node.elts[0], assigned)
        case ast.Call():
            return _of_call(node, assigned)
    return node


def _of_call(node: ast.Call, assigned: Mapping[str, ast.expr]) -> ast.expr | None:
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if name in _ONES:
        return None
    if name in _FULL and len(node.args) > 1:
        return of_one(node.args[1], assigned)
    if name in _JOINS or name in _LISTED:
        first = node.args[0]
        return of_one(first.left if isinstance(first, ast.BinOp) else first, assigned)
    if isinstance(node.func, ast.Attribute) and (name in _REPEATS or (name == "to" and not _is_type(node))):
        return of_one(node.func.value, assigned)
    if isinstance(node.func, ast.Attribute) and name == "to" and of_one(node.func.value, assigned) is None:
        return None  # ones of another type
    given = [of_one(one, assigned) or ast.Constant(1.0) for one in node.args]
    owner = node.func
    if isinstance(owner, ast.Attribute) and isinstance(owner.value, ast.Name) and owner.value.id in assigned:
        owner = ast.Attribute(of_one(owner.value, assigned) or ast.Constant(1.0), owner.attr, ast.Load())
    return ast.Call(owner, given, node.keywords)


def is_real(node: ast.expr, assigned: Mapping[str, ast.expr]) -> bool:
    """Return whether a batch of steps is of fractions by how it is made: with a type of that sort, or as latents
    are.
    """
    for one in ast.walk(node):
        name = one.attr if isinstance(one, ast.Attribute) else getattr(one, "id", "")
        if name in _REAL:
            return True
        if name in assigned and isinstance(one, ast.Name):
            rest = {other: value for other, value in assigned.items() if other != name}
            if is_real(assigned[name], rest):
                return True
    return False


def once(node: ast.expr) -> tuple[ast.expr, bool]:
    """Return an input that one batch contains twice, once; and whether it did."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        first = node.args[0] if node.args else None
        listed = first.elts if node.func.attr in _JOINS and isinstance(first, ast.List | ast.Tuple) else []
        if len(listed) == 2 and ast.dump(listed[0]) == ast.dump(listed[1]):
            return listed[0], True
        if node.func.attr in _JOINS and isinstance(first, ast.BinOp) and isinstance(first.left, ast.List):
            return first.left.elts[0], True
        if node.func.attr == "repeat" and isinstance(first, ast.Constant) and first.value == 2:
            return node.func.value, True
    return node, False


def _is_type(call: ast.Call) -> bool:
    """Return whether `.to` goes to a type that is written there."""
    given = [*call.args, *(one.value for one in call.keywords)]
    return any(isinstance(one, ast.Attribute) and isinstance(one.value, ast.Name) and one.value.id == "torch"
               for one in given)  # fmt: skip


def _is_new_axis(node: ast.expr) -> bool:
    parts = node.elts if isinstance(node, ast.Tuple) else [node]
    return all(
        (isinstance(one, ast.Constant) and one.value in (None, ...)) or isinstance(one, ast.Slice) for one in parts
    )
