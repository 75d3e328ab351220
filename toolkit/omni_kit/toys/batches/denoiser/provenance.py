"""The arguments that a failing operation computes with: noted on the way from the inputs to it."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from omni_kit.toys.tensors import Tensors

_DEEP = 3  # containers in an argument of an operation


class Provenance(TorchFunctionMode):
    """Notes of every tensor from which inputs it was computed.

    Args:
        inputs: by the names that they have in a sample.

    Attributes:
        names: the inputs from which the operands of the last operation were computed.
    """

    def __init__(self, inputs: Tensors) -> None:
        super().__init__()
        self.names = frozenset[str]()
        # A tensor is kept as long as its number stands for it.
        self._known = {id(tensor): (tensor, frozenset([name])) for name, tensor in inputs.items()}

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """See `TorchFunctionMode`."""
        taken = [*_tensors((args, kwargs or {}))]
        self.names = frozenset[str]().union(*map(self._names, taken))
        made = func(*args, **(kwargs or {}))
        for one in _tensors(made) if self.names else ():
            self._known[id(one)] = (one, self.names | self._names(one))
        return made

    def _names(self, tensor: torch.Tensor) -> frozenset[str]:
        return self._known.get(id(tensor), (tensor, frozenset[str]()))[1]


def _tensors(value: Any, deep: int = _DEEP) -> Iterator[torch.Tensor]:
    """Yield the tensors in the arguments of an operation."""
    if isinstance(value, torch.Tensor):
        yield value
    elif deep and isinstance(value, tuple | list | dict):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _tensors(one, deep - 1)
