"""The arguments that a failing operation computes with: noted on the way from the inputs to it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from omni_kit.toys.tensors import Tensors

_DEEP = 3  # containers in an argument of an operation


@dataclass(frozen=True)
class Operand:
    """A tensor that the last operation took.

    Attributes:
        names: the arguments of forward that it was computed from; empty for weights.
        shape, dtype: of the tensor.
        given: it is the argument itself, or a view of it.
    """

    names: frozenset[str]
    shape: tuple[int, ...]
    dtype: torch.dtype
    given: bool


class Provenance(TorchFunctionMode):
    """Notes of every tensor from which inputs it was computed, and of the last operation what it took.

    Args:
        inputs: by the names that they have in a sample.
    """

    def __init__(self, inputs: Tensors) -> None:
        super().__init__()
        self.operation = ""
        self.operands: list[Operand] = []
        # A tensor is kept as long as its number stands for it.
        self._known: dict[int, tuple[torch.Tensor, frozenset[str]]] = {}
        self._given: dict[int, torch.Tensor] = {}
        for name, tensor in inputs.items():
            self._note(tensor, frozenset([name]))
            self._given[_storage(tensor)] = tensor

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """See `TorchFunctionMode`."""
        taken = [*_tensors((args, kwargs or {}))]
        self.operation = getattr(func, "__name__", "")
        self.operands = [
            Operand(self._names(one), tuple(one.shape), one.dtype, _storage(one) in self._given) for one in taken
        ]
        made = func(*args, **(kwargs or {}))
        names = frozenset[str]().union(*(one.names for one in self.operands))
        for one in _tensors(made) if names else ():
            self._note(one, names | self._names(one))
        return made

    def names(self) -> set[str]:
        """Return the arguments that the last operation computes with."""
        return {name for one in self.operands for name in one.names}

    def _note(self, tensor: torch.Tensor, names: frozenset[str]) -> None:
        self._known[id(tensor)] = (tensor, names)

    def _names(self, tensor: torch.Tensor) -> frozenset[str]:
        return self._known.get(id(tensor), (tensor, frozenset[str]()))[1]


def _storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _tensors(value: Any, deep: int = _DEEP) -> Iterator[torch.Tensor]:
    """Yield the tensors in the arguments of an operation."""
    if isinstance(value, torch.Tensor):
        yield value
    elif deep and isinstance(value, tuple | list | dict):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _tensors(one, deep - 1)
