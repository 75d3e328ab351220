"""Tensors that hold one number: what a formula does with them can be told without torch."""

from dataclasses import dataclass, replace
from typing import Any

from omni_checkers.symbolic.values import Value

_SAME = frozenset(
    {"view", "reshape", "flatten", "squeeze", "unsqueeze", "contiguous", "clone", "cpu", "cuda", "unflatten", "expand"}
    | {"requires_grad_", "nan_to_num", "clamp", "type_as", "view_as", "reshape_as"}
)


@dataclass(frozen=True)
class Flat:
    """A tensor whose elements are all one number.

    Attributes:
        count: how many elements it has.
        low: it has the dtype of the model, and not float32.
        trained: a gradient flows back from it.
    """

    value: float
    count: int = 1
    low: bool = True
    trained: bool = False

    def __str__(self) -> str:
        return f"flat({self.value}, {self.count}, {self.low}, {self.trained})"


def method(owner: Flat, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """owner.name(...); None where it is not known."""
    if name in {"float", "double"}:
        return replace(owner, low=False)
    if name in {"to", "type"}:
        given = " ".join(map(str, [*args, *kwargs.values()]))
        return replace(owner, low=owner.low and not any(one in given for one in ("float32", "float64")))
    if name in {"bfloat16", "half"}:
        return replace(owner, low=True)
    if name in {"detach", "item", "tolist"}:
        return replace(owner, trained=False)
    if name == "mean":
        return replace(owner, count=1)
    if name == "sum":
        return replace(owner, value=owner.value * owner.count, count=1)
    if name in {"pow", "square", "abs"}:
        power = args[0] if args and isinstance(args[0], (int, float)) else 2
        return replace(owner, value=abs(owner.value) if name == "abs" else owner.value**power)
    if name in {"sub", "mul", "add", "div"} and args:
        return binary({"sub": "Sub", "mul": "Mult", "add": "Add", "div": "Div"}[name], owner, args[0])
    if name == "numel":
        return owner.count
    return owner if name in _SAME else None


def binary(operator: str, left: Value, right: Value) -> Flat | None:
    """left <operator> right; None where it is not known."""
    one, two = (item.value if isinstance(item, Flat) else item for item in (left, right))
    if not all(isinstance(item, (int, float)) and not isinstance(item, bool) for item in (one, two)):
        return None
    flats = [item for item in (left, right) if isinstance(item, Flat)]
    actions: dict[str, Any] = {
        "Add": lambda: one + two,
        "Sub": lambda: one - two,
        "Mult": lambda: one * two,
        "Div": lambda: one / two,
        "Pow": lambda: one**two,
    }
    if operator not in actions or not flats or (operator == "Div" and not two):
        return None
    count = max(flat.count for flat in flats)
    low, trained = all(flat.low for flat in flats), any(flat.trained for flat in flats)
    return Flat(float(actions[operator]()), count, low, trained)


def together(items: list[Flat], weighted: bool, how: str) -> Flat:
    """The mean or the sum of several tensors; weighted by their elements where they were joined, not stacked."""
    weights = [item.count if weighted else 1 for item in items]
    total = sum(item.value * weight for item, weight in zip(items, weights, strict=True))
    value = total / sum(weights) if how == "mean" else total
    return Flat(value, 1, any(item.low for item in items), all(item.trained for item in items))
