"""The formula of guidance: what an expression is in two answers, and a variable in its place."""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from omni_kit.pysource.eval import Domain, Frame, Unsupported, evaluate

_SCALE = 3.7
"""Of guidance, where its formula is worked out."""
_CLOSE = 1e-9


@dataclass(frozen=True)
class Share:
    """Coefficients of two outputs in a value."""

    one: float
    other: float

    def plus(self, added: "Share", times: float) -> "Share":
        """Both together, the second so many times."""
        return Share(self.one + times * added.one, self.other + times * added.other)


class _Shares(Domain):
    """Numbers, and what is linear in two answers."""

    def operation(self, name: str, operands: list[Any], frame: Frame) -> Any:
        """See `Domain`."""
        none = Share(0.0, 0.0)
        match name, operands:
            case "neg", [Share() as share]:
                return none.plus(share, -1.0)
            case "add" | "sub", [Share() as share, Share() as added]:
                return share.plus(added, -1.0 if name == "sub" else 1.0)
            case ("mul", [Share() as share, int() | float() as factor] | [int() | float() as factor, Share() as share]):
                return none.plus(share, factor)
            case "truediv", [Share() as share, int() | float() as divisor]:
                return none.plus(share, 1 / divisor)
        return super().operation(name, operands, frame)


@dataclass
class Formula:
    """Values of expressions in terms of two outputs.

    Attributes:
        scale: the name of guidance's.
        forms: variable -> how often it has each answer.
    """

    scale: str
    forms: Mapping[str, Any]

    def of(self, node: ast.expr) -> float | Share | None:
        """Return a number, or how often each answer is in it; None for what is neither."""
        try:
            found = evaluate(node, _Shares(), {**self.forms, self.scale: _SCALE})
        except Unsupported:
            return None
        return found if isinstance(found, int | float | Share) else None

    def is_guidance(self, form: Any) -> bool:
        """Return whether one answer, and the scale times the way to the other, is all of it."""
        if not isinstance(form, Share):
            return False
        pairs = (form.one, form.other), (form.other, form.one)
        return any(abs(one - _SCALE) < _CLOSE and abs(other - 1 + _SCALE) < _CLOSE for one, other in pairs)

    def is_weighted(self, form: Any) -> bool:
        """Return whether it is guidance by a weight, which is a scale less 1: `(1 + weight) * one - weight * other`."""
        if not isinstance(form, Share):
            return False
        pairs = (form.one, form.other), (form.other, form.one)
        return any(abs(one - 1 - _SCALE) < _CLOSE and abs(other + _SCALE) < _CLOSE for one, other in pairs)

    def replaced(self, node: ast.stmt, name: str) -> ast.stmt:
        """Return the statement with a variable for the guided answer, where it has one."""
        found = [one for one in ast.walk(node) if isinstance(one, ast.expr) and self.is_guidance(self.of(one))]
        if not found:
            return _Summed(self, name).visit(node)  # type: ignore[no-any-return]
        return Replaced({id(found[0]): name}).visit(node)  # type: ignore[no-any-return]


class Replaced(ast.NodeTransformer):
    """Puts variables instead of expressions."""

    def __init__(self, names: Mapping[int, str]) -> None:
        self.names = names

    def visit(self, node: ast.AST) -> Any:
        """Return the variable, or what the node becomes."""
        name = self.names.get(id(node))
        return ast.Name(name, ast.Load()) if name else super().visit(node)


class _Summed(ast.NodeTransformer):
    """Puts a variable instead of those terms of a sum that are the guided answer together."""

    def __init__(self, formula: Formula, name: str) -> None:
        self.formula = formula
        self.name = name

    def visit_BinOp(self, node: ast.BinOp) -> Any:
        """Return the other terms, and the variable."""
        terms = list(_terms(node))
        whole = Share(0.0, 0.0)
        for sign, one in terms:
            form = self.formula.of(one)
            whole = whole.plus(form, sign) if isinstance(form, Share) else whole
        if not self.formula.is_guidance(whole):
            return self.generic_visit(node)
        found: ast.expr = ast.Name(self.name, ast.Load())
        for sign, one in terms:
            if not isinstance(self.formula.of(one), Share):
                found = ast.BinOp(found, ast.Add() if sign > 0 else ast.Sub(), one)
        return found


def _terms(node: ast.expr) -> Iterator[tuple[float, ast.expr]]:
    """Yield the terms of a sum, with their signs."""
    todo = [(1.0, node)]
    while todo:
        sign, one = todo.pop(0)
        if isinstance(one, ast.BinOp) and isinstance(one.op, ast.Add | ast.Sub):
            todo[:0] = [(sign, one.left), (-sign if isinstance(one.op, ast.Sub) else sign, one.right)]
        else:
            yield sign, one
