"""Inputs of other sizes than any role offers: as torch's error asks for them."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from omni_kit.toys.batches.denoiser.options import Option
from omni_kit.toys.batches.denoiser.sizes import Sizes
from omni_kit.toys.tensors import Tensors
from omni_kit.toys.width_errors import ADDED, WIDTHS

_ASSERTED = re.compile(r"asserted (?P<came>\d+) == (?P<wants>\d+)")
_LARGEST, _MOST = 2048, 2**15  # of an axis, and of a tensor: attention's memory grows with their square


@dataclass(frozen=True)
class Resized:
    """Another option with one axis of another size.

    Attributes:
        option: what makes the tensors, or the layout of latents.
        name: of the argument.
        axis, size: the axis that changes, and its size.
    """

    option: Any
    name: str
    axis: int
    size: int

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the layout, where the option is one."""
        return getattr(self.option, name)

    def __call__(self, sizes: Sizes) -> Tensors:
        """See `Option`."""
        return {where: self._changed(sizes, where, one) for where, one in self.option(sizes).items()}

    def _changed(self, sizes: Sizes, where: str, one: torch.Tensor) -> torch.Tensor:
        if one.dim() <= self.axis:
            return one
        if one.is_floating_point():
            shape = [self.size if axis == self.axis else size for axis, size in enumerate(one.shape)]
            return sizes.values(self.name + where, shape).to(one.dtype)
        return one.index_select(self.axis, torch.arange(self.size) % one.shape[self.axis])


def resized(name: str, option: Option, shape: torch.Size, error: str) -> Iterator[Resized]:
    """Yield an argument with each size of an axis by which the two sizes in an error may become one.

    Args:
        shape: of the argument as it is. Its first axis, that of samples, stays.
    """
    said = next((found for pattern in (ADDED, _ASSERTED, *WIDTHS) if (found := pattern.search(error))), None)
    if said is None or not shape.numel():
        return
    came, wants = int(said["came"]), int(said["wants"])
    for axis, size in [*enumerate(shape)][1:]:
        for new in dict.fromkeys(_sizes(size, came, wants)):
            if 0 < new <= _LARGEST and new != size and shape.numel() // size * new <= _MOST:
                yield Resized(option, name, axis, new)


def _sizes(size: int, came: int, wants: int) -> Iterator[int]:
    """Yield what a size becomes where it is a part, or a multiple, of the one that has to be the other."""
    for one, other in ((came, wants), (wants, came)):
        yield size + other - one
        if one and one % size == 0 and other % (one // size) == 0:
            yield other // (one // size)
        if one and size % one == 0:
            yield other * (size // one)
