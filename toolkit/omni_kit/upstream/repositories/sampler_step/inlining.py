"""Inlining of a method's result as assignments: a body without `return`, in place of the call."""

import ast
import copy
from collections.abc import Sequence

from omni_kit.pysource.eval import Unsupported
from omni_kit.upstream.repositories.sampler_step.flow import is_switch


def answered(body: Sequence[ast.stmt], target: ast.expr | None) -> list[ast.stmt]:
    """Return statements that give a target what the body returns; None for what nobody reads.

    Raises:
        Unsupported: it returns in the middle of a loop.
    """
    told: list[ast.stmt] = []
    for place, node in enumerate(body):
        rest = body[place + 1 :]
        if isinstance(node, ast.Return):
            if target is not None:
                told.append(ast.Assign([copy.deepcopy(target)], node.value or ast.Constant(None)))
            return told
        if isinstance(node, ast.With) and all(is_switch(one.context_expr) for one in node.items):
            return [*told, *answered([*node.body, *rest], target)]
        if isinstance(node, ast.If) and _returns(node):
            then, other = answered([*node.body, *rest], target), answered([*node.orelse, *rest], target)
            return [*told, ast.If(node.test, then or [ast.Pass()], other)]
        if _returns(node):
            raise Unsupported(f"returns from inside a `{type(node).__name__.lower()}` in line {node.lineno}")
        told.append(node)
    return told


def statements(body: Sequence[ast.stmt]) -> list[ast.stmt]:
    """Return a body without its docstring."""
    first = body[0] if body else None
    is_text = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    return [*body[1:]] if is_text else [*body]


def _returns(node: ast.stmt) -> bool:
    return any(isinstance(one, ast.Return) for one in ast.walk(node))
