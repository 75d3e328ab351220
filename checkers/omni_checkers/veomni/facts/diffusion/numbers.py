"""Tensors that hold one number: what a formula does with them can be told without torch."""

from dataclasses import dataclass, replace
from typing import Any

from omni_checkers.symbolic import UNKNOWN, Modelled, Opaque, Value

_SAME = frozenset(
    {"view", "reshape", "flatten", "squeeze", "unsqueeze", "contiguous", "clone", "cpu", "cuda", "unflatten", "expand"}
    | {"requires_grad_", "nan_to_num", "clamp", "type_as", "view_as", "reshape_as"}
)


@dataclass(frozen=True)
class Flat(Modelled):
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

    def attribute(self, name: str) -> Value:
        """See `Modelled`."""
        return _attribute(self, name)

    def method(self, name: str, arguments: list[Value], keywords: dict[str, Value]) -> Value:
        """See `Modelled`."""
        if name in {"float", "double"}:
            return replace(self, low=False)
        if name in {"to", "type"}:
            given = " ".join(map(str, [*arguments, *keywords.values()]))
            return replace(self, low=self.low and not any(one in given for one in ("float32", "float64")))
        if name in {"bfloat16", "half"}:
            return replace(self, low=True)
        if name in {"detach", "item", "tolist"}:
            return replace(self, trained=False)
        if name == "mean":
            return replace(self, count=1)
        if name == "sum":
            return replace(self, value=self.value * self.count, count=1)
        if name in {"pow", "square", "abs"}:
            power = arguments[0] if arguments and isinstance(arguments[0], (int, float)) else 2
            return replace(self, value=abs(self.value) if name == "abs" else self.value**power)
        if name in {"sub", "mul", "add", "div"} and arguments:
            return binary("truediv" if name == "div" else name, self, arguments[0])
        if name == "numel":
            return self.count
        return self if name in _SAME else UNKNOWN

    def operation(self, name: str, operands: list[Value]) -> Value:
        """See `Modelled`."""
        return binary(name, *operands) if len(operands) == 2 else UNKNOWN

    def item(self, key: Value) -> Value:
        """See `Modelled`: a part is like the whole."""
        return self

    def __str__(self) -> str:
        return f"flat({self.value}, {self.count}, {self.low}, {self.trained})"


@dataclass(frozen=True)
class Joined(Modelled):
    """Tensors that were stacked, or joined one after another."""

    items: tuple[Flat, ...]
    weighted: bool

    def attribute(self, name: str) -> Value:
        """See `Modelled`."""
        return _attribute(self, name)

    def method(self, name: str, arguments: list[Value], keywords: dict[str, Value]) -> Value:
        """See `Modelled`."""
        if name in {"mean", "sum"}:
            return together(list(self.items), self.weighted, name)
        return self if name in {"view", "reshape", "flatten", "float", "to", "squeeze"} else UNKNOWN

    def __str__(self) -> str:
        return f"joined({[str(item) for item in self.items]}, {self.weighted})"


def _attribute(owner: Flat | Joined, name: str) -> Value:
    if name in {"shape", "dtype", "device", "ndim"}:
        return Opaque(f"{owner}.{name}")
    return owner if name in {"sample", "data"} else UNKNOWN


def binary(operator: str, left: Value, right: Value) -> Value:
    """left <operator> right; UNKNOWN if it is not known."""
    one, two = (item.value if isinstance(item, Flat) else item for item in (left, right))
    if not all(isinstance(item, (int, float)) and not isinstance(item, bool) for item in (one, two)):
        return UNKNOWN
    flats = [item for item in (left, right) if isinstance(item, Flat)]
    actions: dict[str, Any] = {
        "add": lambda: one + two,
        "sub": lambda: one - two,
        "mul": lambda: one * two,
        "truediv": lambda: one / two,
        "pow": lambda: one**two,
    }
    if operator not in actions or not flats or (operator == "truediv" and not two):
        return UNKNOWN
    count = max(flat.count for flat in flats)
    low, trained = all(flat.low for flat in flats), any(flat.trained for flat in flats)
    return Flat(float(actions[operator]()), count, low, trained)


def together(items: list[Flat], weighted: bool, how: str) -> Flat:
    """Return the mean or the sum of several tensors; weighted by their elements where they were joined, not stacked."""
    weights = [item.count if weighted else 1 for item in items]
    total = sum(item.value * weight for item, weight in zip(items, weights, strict=True))
    value = total / sum(weights) if how == "mean" else total
    return Flat(value, 1, any(item.low for item in items), all(item.trained for item in items))
