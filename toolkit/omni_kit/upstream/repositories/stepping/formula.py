"""The formula of guidance: what an expression is in two answers, and a variable in its place."""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

_SCALE = 3.7
"""Of guidance, where its formula is worked out."""
_CLOSE = 1e-9


@dataclass
class Formula:
    """What expressions are in two answers.

    Attributes:
        scale: the name of guidance's.
        forms: variable -> how often it has each answer.
    """

    scale: str
    forms: Mapping[str, Any]

    def of(self, node: ast.expr) -> Any:
        """A number, or how often each answer is in it; None for what is neither."""
        match node:
            case ast.Name():
                return _SCALE if node.id == self.scale else self.forms.get(node.id)
            case ast.Constant(value=int() | float()):
                return float(ast.literal_eval(node))
            case ast.UnaryOp(op=ast.USub()):
                return _times(-1.0, self.of(node.operand))
            case ast.BinOp():
                return _joined(node.op, self.of(node.left), self.of(node.right))
        return None

    def is_guidance(self, form: Any) -> bool:
        """Whether one answer, and the scale times the way to the other, is all of it."""
        pair = form if isinstance(form, tuple) else ()
        return bool(pair) and any(
            abs(one - _SCALE) < _CLOSE and abs(other - 1 + _SCALE) < _CLOSE for one, other in (pair, pair[::-1])
        )

    def replaced(self, node: ast.stmt, name: str) -> ast.stmt:
        """The statement with a variable for the guided answer, where it has one."""
        found = [one for one in ast.walk(node) if isinstance(one, ast.expr) and self.is_guidance(self.of(one))]
        if not found:
            return _Summed(self, name).visit(node)  # type: ignore[no-any-return]
        return Replaced({id(found[0]): name}).visit(node)  # type: ignore[no-any-return]


def _times(number: float, form: Any) -> Any:
    return None if form is None else tuple(number * one for one in form) if isinstance(form, tuple) else number * form


def _joined(op: ast.operator, left: Any, right: Any) -> Any:
    if left is None or right is None:
        return None
    if isinstance(op, ast.Add | ast.Sub) and isinstance(left, tuple) == isinstance(right, tuple):
        right = _times(-1.0 if isinstance(op, ast.Sub) else 1.0, right)
        return (left[0] + right[0], left[1] + right[1]) if isinstance(left, tuple) else left + right
    if isinstance(op, ast.Mult) and not (isinstance(left, tuple) and isinstance(right, tuple)):
        return _times(right, left) if isinstance(left, tuple) else _times(left, right)
    return _times(1 / right, left) if isinstance(op, ast.Div) and isinstance(right, float) and right else None


class Replaced(ast.NodeTransformer):
    """Puts variables in the place of expressions."""

    def __init__(self, names: Mapping[int, str]) -> None:
        self.names = names

    def visit(self, node: ast.AST) -> Any:
        """The variable, or what the node becomes."""
        name = self.names.get(id(node))
        return ast.Name(name, ast.Load()) if name else super().visit(node)


class _Summed(ast.NodeTransformer):
    """Puts a variable in the place of those terms of a sum that are the guided answer together."""

    def __init__(self, formula: Formula, name: str) -> None:
        self.formula = formula
        self.name = name

    def visit_BinOp(self, node: ast.BinOp) -> Any:
        """The other terms, and the variable."""
        terms = list(_terms(node, 1.0))
        own = [(sign, form) for sign, one in terms if isinstance(form := self.formula.of(one), tuple)]
        whole = (sum(sign * form[0] for sign, form in own), sum(sign * form[1] for sign, form in own))
        if not self.formula.is_guidance(whole):
            return self.generic_visit(node)
        found: ast.expr = ast.Name(self.name, ast.Load())
        for sign, one in terms:
            if not isinstance(self.formula.of(one), tuple):
                found = ast.BinOp(found, ast.Add() if sign > 0 else ast.Sub(), one)
        return found


def _terms(node: ast.expr, sign: float) -> Iterator[tuple[float, ast.expr]]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        yield from _terms(node.left, sign)
        yield from _terms(node.right, -sign if isinstance(node.op, ast.Sub) else sign)
    else:
        yield sign, node
