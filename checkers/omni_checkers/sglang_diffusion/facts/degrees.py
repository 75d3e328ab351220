"""Scales as products of powers: the factors of an expression, and their direction."""

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from omni_kit.pysource.eval import UNKNOWN, Frame, OpenDomain, Scope, Unknown
from omni_kit.pysource.nodes import assigned, last_name, names_in, returns
from omni_kit.pysource.source import SourceFile

Degree = Mapping[str, int]
"""Name -> power; empty for a plain number, with "-" for one below zero."""
_SHAPES = frozenset({
    "view", "to", "reshape", "float", "clone", "tensor", "unsqueeze", "as_tensor", "expand", "squeeze", "type_as",
    "cuda", "cast", "Tensor", "tuple", "list", "sqrt",
})  # fmt: skip
_NAMED = (
    "scaling_factor", "shift_factor", "latents_mean", "latents_std", "running_mean", "running_var", "scale_factor",
)  # fmt: skip


@dataclass(frozen=True)
class _Factor:
    """A product of powers.

    Attributes:
        owner: what it is an attribute of; None for anything else.
    """

    powers: Degree
    owner: Any = None


def degree(node: ast.expr, source: SourceFile, function: ast.FunctionDef) -> Degree | None:
    """Return the powers in an expression; None if it cannot be read."""
    try:
        return _powers(_FirstWay(_Factors(function), source.path, source.module, Scope({})).value(node))
    except Exception:  # whatever stands in the way of a value
        return None


class _Factors(OpenDomain):
    """Attributes and some variables are factors; other variables are what they are assigned last."""

    def __init__(self, function: ast.FunctionDef) -> None:
        super().__init__()
        self.function = function

    def name(self, name: str, frame: Frame) -> Any:
        """See `Domain`."""
        values = [value for value in assigned(self.function, name) if name not in names_in(value)]
        if values:
            return frame.value(values[-1])
        return _Factor({name: 1}) if any(one in name for one in _NAMED) else super().name(name, frame)

    def attribute(self, base: Any, name: str, frame: Frame) -> Any:
        """See `Domain`."""
        return _Factor({name: 1}, base)

    def item(self, base: Any, key: Any, frame: Frame) -> Any:
        """See `Domain`: an item has the powers of its container."""
        return base

    def operation(self, name: str, operands: list[Any], frame: Frame) -> Any:
        """See `Domain`."""
        match name, [_powers(one) for one in operands]:
            case "neg", [dict() as powers]:
                return _Factor({**powers, "-": 1})
            case "mul" | "truediv", [dict() as left, dict() as right]:
                return _Factor(_product(left, right, 1 if name == "mul" else -1))
            case "pow", [dict() as powers, {"-": 1}]:
                return _Factor(_product({}, powers, -1))
            case "add" | "sub", [dict() as powers, dict() as other] if all("eps" in one for one in other):
                return _Factor(powers)  # a small number keeps a root from 0
        return UNKNOWN

    def call(self, function: Any, arguments: list[Any], keywords: dict[str, Any], frame: Frame, node: ast.expr) -> Any:
        """See `Domain`."""
        name, owner = last_name(node), function.owner if isinstance(function, _Factor) else None
        if name == "getattr" and len(arguments) > 1:
            return _Factor({str(arguments[1]): 1})
        inner = arguments[0] if arguments and (owner is None or owner == Unknown("torch")) else owner
        if name in {"reciprocal", "rsqrt"} and (powers := _powers(inner)) is not None:
            return _Factor(_product({}, powers, -1))
        return inner if name in _SHAPES else UNKNOWN


class _FirstWay(Frame):
    """Code of which the first way counts that says anything."""

    def of_ifexp(self, node: ast.IfExp) -> Any:
        """Return one of two values: the first, unless it is a plain number or not known."""
        first = self.value(node.body)
        return first if _powers(first) else self.value(node.orelse)

    def of_boolop(self, node: ast.BoolOp) -> Any:
        """Return the first value."""
        return self.value(node.values[0])


def _powers(value: Any) -> Degree | None:
    """Return the powers in a value; None if they are unknown."""
    if isinstance(value, _Factor):
        return value.powers
    if isinstance(value, int | float):
        return {"-": 1} if value < 0 else {}
    return {} if value is None or isinstance(value, str) else None


def _product(left: Degree, right: Degree, times: int) -> Degree:
    """Both together, the second so many times."""
    powers = {name: left.get(name, 0) + times * right.get(name, 0) for name in {**left, **right}}
    return {name: power for name, power in powers.items() if power}


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
