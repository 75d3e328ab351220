"""Inputs of other sizes than any role offers: as torch's error asks for them."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from omni_kit.toys.batches.denoiser.failed_checks import required_shapes, required_sizes
from omni_kit.toys.batches.denoiser.options import Option
from omni_kit.toys.batches.denoiser.sizes import Sizes
from omni_kit.toys.tensors import Tensors
from omni_kit.toys.width_errors import ADDED, EXPANDED, VIEWED, WIDTHS

_PICTURE = 4  # axes: samples, channels, rows and columns
_LARGEST, _MOST = 4096, 2**15  # of an axis, and of a tensor: attention's memory grows with their square


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


@dataclass(frozen=True)
class Reshaped(Resized):
    """Another option of another shape.

    Attributes:
        shape: of its tensor.
    """

    shape: tuple[int, ...] = ()

    def _changed(self, sizes: Sizes, where: str, one: torch.Tensor) -> torch.Tensor:
        return sizes.values(self.name + where, self.shape).to(one.dtype) if one.is_floating_point() else one


def resized(name: str, option: Option, shape: torch.Size, error: str) -> Iterator[Resized]:
    """Yield an argument with each size of an axis by which the two sizes in an error may become one.

    Args:
        shape: of the argument as it is. Its first axis, that of samples, stays.
    """
    said = next((found for pattern in (ADDED, EXPANDED, *WIDTHS) if (found := pattern.search(error))), None)
    both = (int(said["came"]), int(said["wants"])) if said is not None else None
    changes = required_sizes(error) if both is None else [both, both[::-1]]
    if not shape.numel():
        return
    yield from _with_area(name, option, shape, error)
    yield from (Reshaped(option, name, -1, 0, new) for old, new in required_shapes(error)
                if old == tuple(shape) and new[0] == old[0] and math.prod(new) <= _MOST)  # fmt: skip
    yield from _in_both(name, option, shape, changes)
    for axis, size in [*enumerate(shape)][1:]:
        for new in dict.fromkeys(other for change in changes for other in changed(size, *change)):
            if 0 < new <= _LARGEST and new != size and shape.numel() // size * new <= _MOST:
                yield Resized(option, name, axis, new)


def _in_both(name: str, option: Option, shape: torch.Size, changes: Sequence[tuple[int, int]]) -> Iterator[Resized]:
    """Yield an argument with rows and columns in the same proportion, where its rows or its columns may change."""
    if len(shape) < _PICTURE:
        return
    rows, columns = shape[-2:]
    both = [(new, columns * new // rows) for change in changes for new in changed(rows, *change)]
    both += [(rows * new // columns, new) for change in changes for new in changed(columns, *change)]
    for high, wide in dict.fromkeys(both):
        fits = shape.numel() // (rows * columns) * high * wide <= _MOST and high * columns == wide * rows
        if fits and high > 0 and (high, wide) != (rows, columns):
            yield Resized(Resized(option, name, len(shape) - 2, high), name, len(shape) - 1, wide)


def _with_area(name: str, option: Option, shape: torch.Size, error: str) -> Iterator[Resized]:
    """Yield an argument with as many rows as columns, in the number that a fixed shape in an error needs."""
    if (said := VIEWED.search(error)) is None or len(shape) < _PICTURE:
        return
    wanted = math.prod(size for one in said[1].split(",") if (size := int(one)) > 0)
    area, rest = divmod(shape[-1] * shape[-2] * wanted, int(said[2]) or 1)
    side, fits = math.isqrt(area), shape.numel() // (shape[-1] * shape[-2]) * area <= _MOST
    if rest == 0 and side * side == area and 0 < side <= _LARGEST and fits:
        yield Resized(Resized(option, name, len(shape) - 2, side), name, len(shape) - 1, side)


def changed(size: int, one: int, other: int) -> Iterator[int]:
    """Yield what a size becomes where it is a part, or a multiple, of one size that becomes another; a multiple with a
    rest, too, as layers that halve it leave one out.
    """
    yield size + other - one
    yield from in_proportion(size, one, other)
    if 0 < one < size:
        yield other * (size // one)


def in_proportion(size: int, one: int, other: int) -> Iterator[int]:
    """Yield what a size becomes that divides one size, or is a multiple of it, as that one becomes another."""
    if one and size and one % size == 0 and other % (one // size) == 0:
        yield other // (one // size)
    if one and size % one == 0:
        yield other * (size // one)
