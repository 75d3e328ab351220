"""Expressions of one variable, read as scale and offset: 1 - t / 1000 is -0.001 t + 1."""

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from omni_kit.pysource.eval import UNKNOWN, Frame, Native, OpenDomain, Unknown, Unsupported
from omni_kit.pysource.eval import evaluate as value_of

# Methods that change the shape, the kind or the place of a tensor, and none of its values.
_SAME = frozenset(
    {"expand", "to", "repeat", "float", "view", "reshape", "unsqueeze", "squeeze", "flatten", "expand_as"}
)
_MAKES = frozenset({"tensor", "as_tensor", "full"})
_SCHEDULER_STEPS, _TRAINED_STEPS = "self.scheduler.config.num_train_timesteps", 1000.0


@dataclass(frozen=True)
class Affine:
    """scale * variable + offset."""

    scale: float
    offset: float = 0.0

    def plus(self, other: "Affine", times: float) -> "Affine":
        """Both together, the second so many times."""
        return Affine(self.scale + times * other.scale, self.offset + times * other.offset)


def evaluate(
    node: ast.expr,
    variable: str,
    assigned: Sequence[tuple[int, str, ast.expr]],
    constants: Mapping[str, object],
    line: int,
) -> Affine | None:
    """Return an expression in terms of one variable; None if it is none such.

    Args:
        assigned: line, name and value of assignments, in order; of several before `line`, the last that can be read.
        constants: values of dotted names.
    """
    return _AffineValues(variable, assigned, constants).read(node, line)


class _AffineValues(OpenDomain):
    """Numbers, and what is affine in one variable; the home of a frame is the line that it stands in."""

    def __init__(
        self, variable: str, assigned: Sequence[tuple[int, str, ast.expr]], constants: Mapping[str, object]
    ) -> None:
        numbers = {name: one for name, one in constants.items() if isinstance(one, int | float)}
        super().__init__({**numbers, _SCHEDULER_STEPS: _TRAINED_STEPS})
        self.variable, self.assigned = variable, assigned
        self._known: dict[tuple[str, int], Any] = {}

    def read(self, node: ast.expr, line: int) -> Affine | None:
        """Return an expression in a line; None if it is not affine."""
        try:
            return _affine(value_of(node, self, home=line))
        except Unsupported:
            return None

    def name(self, name: str, frame: Frame) -> Any:
        """See `Domain`: what the name was last assigned, of what can be read."""
        place = name, frame.home
        if place not in self._known:
            earlier = [(line, value) for line, one, value in self.assigned if one == name and line < frame.home]
            found = (self.read(value, line) for line, value in reversed(earlier))
            last = next((one for one in found if one is not None and (one.scale or one.offset)), None)
            self._known[place] = last or (Affine(1.0) if name == self.variable else None)
        return self._known[place] or super().name(name, frame)

    def attribute(self, base: Any, name: str, frame: Frame) -> Any:
        """See `Domain`: of the variable, methods that leave the values as they are."""
        if isinstance(base, Affine):
            return Native(partial(_itself, base)) if name in _SAME else UNKNOWN
        return super().attribute(base, name, frame)

    def item(self, base: Any, key: Any, frame: Frame) -> Any:
        """See `Domain`: an item of the variable is the variable of one sample."""
        return base if isinstance(base, Affine) else super().item(base, key, frame)

    def operation(self, name: str, operands: list[Any], frame: Frame) -> Any:
        """See `Domain`."""
        if name == "mul" and isinstance(operands[0], list):  # [t] * batch
            return operands[0]
        pair = [_affine(one) for one in operands]
        match name, pair:
            case "neg", [Affine() as value]:
                return Affine(0.0).plus(value, -1.0)
            case "add" | "sub", [Affine() as left, Affine() as right]:
                return left.plus(right, -1.0 if name == "sub" else 1.0)
            case ("mul", [Affine() as value, Affine(0.0, factor)] | [Affine(0.0, factor), Affine() as value]):
                return Affine(0.0).plus(value, factor)
            case "truediv", [Affine() as left, Affine(0.0, divisor)]:
                return Affine(0.0).plus(left, 1 / divisor)
        return UNKNOWN

    def truth(self, value: Any, frame: Frame) -> bool:
        """See `Domain`: no condition holds, as without guidance."""
        return False

    def call(self, function: Any, arguments: list[Any], keywords: dict[str, Any], frame: Frame, node: ast.expr) -> Any:
        """See `Domain`: a tensor that is made of a value is that value."""
        made = function.name.rpartition(".")[2] if isinstance(function, Unknown) else ""
        if made in _MAKES and arguments:
            return _affine(arguments[-1 if made == "full" else 0]) or UNKNOWN
        if isinstance(function, Native) and isinstance(function.function, partial):
            return function.function()
        return super().call(function, arguments, keywords, frame, node)


def _itself(value: Affine) -> Affine:
    return value


def _affine(value: Any) -> Affine | None:
    """Return a value as an affine one; a list of the same value is that value."""
    if isinstance(value, list | tuple) and value and all(one == value[0] for one in value):
        return _affine(value[0])
    if isinstance(value, int | float):
        return Affine(0.0, float(value))
    return value if isinstance(value, Affine) else None
