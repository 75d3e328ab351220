"""Scales as products of powers: what a factor is made of, and in which direction."""

import ast
from collections.abc import Mapping

from omni_kit.pysource.nodes import assigned, last_name, returns
from omni_kit.pysource.source import SourceFile, dotted

Degree = Mapping[str, int]
"""Name -> power; empty for a plain number."""
_SHAPES = frozenset(
    {
        "view",
        "to",
        "reshape",
        "float",
        "clone",
        "tensor",
        "unsqueeze",
        "as_tensor",
        "expand",
        "squeeze",
        "type_as",
        "cuda",
    }
    | {"cast", "Tensor", "tuple", "list"}
)
_NAMED = (
    "scaling_factor",
    "shift_factor",
    "latents_mean",
    "latents_std",
    "running_mean",
    "running_var",
    "scale_factor",
)
_DEEPEST = 10


def degree(node: ast.expr, source: SourceFile, function: ast.FunctionDef, depth: int = 0) -> Degree | None:
    """What an expression is made of; None where it cannot be read."""
    if depth > _DEEPEST:
        return None
    match node:
        case ast.Constant():
            return {}
        case ast.Attribute(attr=name):
            return {name: 1}
        case ast.Subscript():
            return degree(node.value, source, function, depth + 1)
        case ast.Name(id=name):
            values = [value for value in assigned(function, name) if name not in _names(value)]
            if values:
                return degree(values[-1], source, function, depth + 1)
            return {name: 1} if any(one in name for one in _NAMED) else None
        case ast.IfExp():
            first = degree(node.body, source, function, depth + 1)
            return first or degree(node.orelse, source, function, depth + 1)
        case ast.BoolOp(values=[first, *_]):
            return degree(first, source, function, depth + 1)
        case ast.UnaryOp():
            inner = degree(node.operand, source, function, depth + 1)
            return {**inner, "-": 1} if inner is not None and isinstance(node.op, ast.USub) else inner
        case ast.BinOp():
            return _joined(node, source, function, depth)
        case ast.Call():
            return _called(node, source, function, depth)
    return None


def _joined(node: ast.BinOp, source: SourceFile, function: ast.FunctionDef, depth: int) -> Degree | None:
    left = degree(node.left, source, function, depth + 1)
    right = degree(node.right, source, function, depth + 1)
    if left is None or right is None:
        return None
    if isinstance(node.op, (ast.Mult, ast.Div)):
        sign = 1 if isinstance(node.op, ast.Mult) else -1
        names = {*left, *right}
        return {name: power for name in names if (power := left.get(name, 0) + sign * right.get(name, 0))}
    if isinstance(node.op, ast.Pow) and isinstance(node.right, ast.UnaryOp):
        return {name: -power for name, power in left.items()}
    if isinstance(node.op, (ast.Add, ast.Sub)) and all("eps" in name for name in right):
        return left  # a small number that keeps a root from 0
    return None


def _called(node: ast.Call, source: SourceFile, function: ast.FunctionDef, depth: int) -> Degree | None:
    name = last_name(node.func)
    owner = node.func.value if isinstance(node.func, ast.Attribute) else None
    inner = node.args[0] if node.args and (owner is None or dotted(owner) == "torch") else owner
    if name == "getattr" and len(node.args) > 1 and isinstance(node.args[1], ast.Constant):
        return {str(node.args[1].value): 1}
    if inner is None:
        return None
    if name in _SHAPES or name == "sqrt":
        return degree(inner, source, function, depth + 1)
    if name in ("reciprocal", "rsqrt"):
        found = degree(inner, source, function, depth + 1)
        return {part: -power for part, power in found.items()} if found is not None else None
    return None


def pair(
    value: ast.expr, source: SourceFile, function: ast.FunctionDef
) -> tuple[ast.expr, ast.expr, SourceFile, ast.FunctionDef] | None:
    """Scale and shift as a function returns them, also through a function that it calls."""
    if isinstance(value, ast.Tuple) and len(value.elts) == 2:
        return value.elts[0], value.elts[1], source, function
    if isinstance(value, ast.Name):
        known = assigned(function, value.id)
        return pair(known[-1], source, function) if known else None
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name):
        found = source.resolve_function(value.func.id)
        answers = returns(found[1]) if found is not None else []
        return pair(answers[-1], *found) if found is not None and answers else None
    return None


def _names(node: ast.expr) -> set[str]:
    return {item.id for item in ast.walk(node) if isinstance(item, ast.Name)}
