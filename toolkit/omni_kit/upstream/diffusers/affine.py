"""Expressions of one variable, read as scale and offset: 1 - t / 1000 is -0.001 t + 1."""

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from omni_kit.pysource.source import dotted

# Methods that change the shape, the kind or the place of a tensor, and none of its values.
_SAME = frozenset(
    {"expand", "to", "repeat", "float", "view", "reshape", "unsqueeze", "squeeze", "flatten", "expand_as"}
)
_MAKES = frozenset({"tensor", "as_tensor", "full"})
_TRAINED_STEPS = 1000.0
_DEEPEST = 40


@dataclass(frozen=True)
class Affine:
    """scale * variable + offset."""

    scale: float
    offset: float = 0.0


def evaluate(
    node: ast.expr,
    variable: str,
    assigned: Sequence[tuple[int, str, ast.expr]],
    constants: Mapping[str, object],
    line: int,
    depth: int = 0,
) -> Affine | None:
    """An expression in terms of one variable; None where it is none such.

    Args:
        assigned: line, name and value of assignments, in order; of several before `line`, the last that can be read.
        constants: values of dotted names.
    """
    if depth > _DEEPEST:
        return None

    def read(inner: ast.expr) -> Affine | None:
        return evaluate(inner, variable, assigned, constants, line, depth + 1)

    name = dotted(node)
    if name == variable and not any(one == name and at < line for at, one, _ in assigned):
        return Affine(1.0)
    if name is not None and (found := _constant(name, constants)) is not None:
        return Affine(0.0, found)
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return Affine(0.0, float(node.value))
    if isinstance(node, ast.Name):
        return _last(node.id, variable, assigned, constants, line, depth)
    if isinstance(node, ast.BinOp) and isinstance(node.left, ast.List):  # [t] * batch
        return read(node.left)
    if isinstance(node, ast.BinOp):
        return _computed(node.op, read(node.left), read(node.right))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return _computed(ast.Sub(), Affine(0.0), read(node.operand))
    if isinstance(node, ast.IfExp):  # the branch without guidance
        return read(node.orelse)
    if isinstance(node, ast.Subscript):
        return read(node.value)
    if isinstance(node, ast.List) and len(node.elts) == 1:
        return read(node.elts[0])
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr in _SAME:
            return read(node.func.value)
        if node.func.attr in _MAKES and node.args:
            return read(node.args[-1 if node.func.attr == "full" else 0])
    return None


def _constant(name: str, constants: Mapping[str, object]) -> float | None:
    if name.endswith("scheduler.config.num_train_timesteps"):
        return _TRAINED_STEPS
    value = constants.get(name)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _last(
    name: str,
    variable: str,
    assigned: Sequence[tuple[int, str, ast.expr]],
    constants: Mapping[str, object],
    line: int,
    depth: int,
) -> Affine | None:
    """What a name was last assigned, of what can be read."""
    for at, one, value in reversed(assigned):
        if one == name and at < line:
            found = evaluate(value, variable, assigned, constants, at, depth + 1)
            if found is not None and (found.scale or found.offset):
                return found
    return Affine(1.0) if name == variable else None


def _computed(operator: ast.operator, left: Affine | None, right: Affine | None) -> Affine | None:
    if left is None or right is None:
        return None
    if isinstance(operator, ast.Add):
        return Affine(left.scale + right.scale, left.offset + right.offset)
    if isinstance(operator, ast.Sub):
        return Affine(left.scale - right.scale, left.offset - right.offset)
    if isinstance(operator, ast.Mult) and not (left.scale and right.scale):
        varying, factor = (left, right.offset) if left.scale else (right, left.offset)
        return Affine(varying.scale * factor, varying.offset * factor)
    if isinstance(operator, ast.Div) and not right.scale and right.offset:
        return Affine(left.scale / right.offset, left.offset / right.offset)
    return None
