"""Tensors of a few labelled elements: what torch's functions that move elements do to the labels, without torch."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from omni_checkers.symbolic.values import UNKNOWN, Modelled, Opaque, Value

# What leaves the elements where they are.
_SAME = frozenset({
    "contiguous", "to", "clone", "detach", "cpu", "float", "half", "bfloat16", "type_as", "requires_grad_",
})  # fmt: skip
# What moves or drops elements and computes nothing; what tells sizes.
_MOVING = frozenset({
    "stack", "cat", "concat", "concatenate", "transpose", "swapaxes", "swapdims", "t", "permute",
    "movedim", "chunk", "split", "split_with_sizes", "tensor_split", "unbind", "narrow", "select", "reshape", "view",
    "flatten", "unflatten", "unsqueeze", "squeeze", "flip", "roll", "getitem", "expand", "repeat", "repeat_interleave",
    "index_select", "dim", "size", "numel",
})  # fmt: skip


class NotATensor(Exception):
    """The operation is not known, or does not fit the shapes."""


@dataclass(frozen=True)
class Tiny(Modelled):
    """A tensor whose elements are labels; every label occurs once in a checkpoint.

    Attributes:
        data: elements in row-major order.
    """

    shape: tuple[int, ...]
    data: tuple[str, ...]

    @classmethod
    def named(cls, name: str, shape: Sequence[int]) -> "Tiny":
        """Return a tensor whose elements are called after it and their place."""
        places = product(*(range(size) for size in shape))
        return cls(tuple(shape), tuple(f"{name}{list(place)}" for place in places))

    def attribute(self, name: str) -> Value:
        """See `Modelled`."""
        return {"shape": self.shape, "ndim": len(self.shape)}.get(name, UNKNOWN)

    def method(self, name: str, arguments: list[Value], keywords: dict[str, Value]) -> Value:
        """See `Modelled`."""
        try:
            return call(name, [self, *arguments], keywords)
        except NotATensor as error:
            return Opaque(f"tensor({error})")

    def item(self, key: Value) -> Value:
        """See `Modelled`."""
        return self.method("getitem", [key], {})

    def __str__(self) -> str:
        return f"tensor{list(self.shape)}({self.data[0] if self.data else ''}...{hash(self.data) & 0xFFFF:x})"


def call(name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Return the result of a torch function or method, computed on element positions; labels follow.

    Raises:
        NotATensor: it is not known, not about such tensors, or torch would refuse it.
    """
    from omni_kit.upstream.torch import functions  # only here is NumPy needed
    from omni_kit.upstream.torch.tensors import Tensor

    labels: list[str] = []

    def placed(value: Any) -> Any:
        if isinstance(value, Tiny):
            first = len(labels)
            labels.extend(value.data)
            return functions.view(functions.arange(first, len(labels)), value.shape)
        return type(value)(map(placed, value)) if type(value) in {list, tuple} else value

    def labelled(value: Any) -> Any:
        if isinstance(value, Tensor):
            return Tiny(value.shape, tuple(labels[place] for place in value.data.ravel()))
        return [labelled(one) for one in value] if isinstance(value, tuple) and name != "size" else value

    if name in _SAME and args and isinstance(args[0], Tiny):
        return args[0]
    name = "cat" if name == "vstack" else name
    given = [placed(one) for one in args]
    named = {"dim" if key == "axis" else key: placed(one) for key, one in kwargs.items()}
    if name not in _MOVING or not labels:
        raise NotATensor(name)
    try:
        return labelled(functions.call(name, given, named))
    except functions.UnsupportedOperation as error:
        raise NotATensor(str(error)) from error
