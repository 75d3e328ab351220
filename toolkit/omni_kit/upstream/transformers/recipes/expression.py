"""Tensor operations on shapes alone: where each element of a result comes from, never what it is.

An `Expression` is a tensor that does not exist yet: its shape, and the pieces of source tensors that fill it. Slicing,
stacking, concatenating, transposing and interleaving only rearrange pieces, so any chain of them stays one flat list,
and the same list read backwards is the inverse.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple, TypeVar

_T = TypeVar("_T")


class Axis(NamedTuple):
    """One dimension of a piece: `size` elements, `stride` apart in the source, at start, start+step, ... here."""

    size: int
    stride: int
    start: int
    step: int


class Piece(NamedTuple):
    """A strided box of the source tensor `key`, from element `offset` on."""

    key: str
    offset: int
    axes: tuple[Axis, ...]

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(axis.size for axis in self.axes)

    @property
    def span(self) -> int:
        """Elements of the source between the first and the last of this piece, both included."""
        return 1 + sum((axis.size - 1) * axis.stride for axis in self.axes)


@dataclass(frozen=True)
class Expression:
    """A tensor of `shape`, filled by `pieces` that do not overlap."""

    shape: tuple[int, ...]
    pieces: tuple[Piece, ...]

    @property
    def size(self) -> int:
        """Number of elements in the tensor."""
        return math.prod(self.shape)

    @property
    def unmoved(self) -> str | None:
        """The source tensor whose elements, from the first on, are these in the same order; None for anything else."""
        keys = {piece.key for piece in self.pieces}
        steps = strides(self.shape)
        return keys.pop() if len(keys) == 1 and all(_in_place(piece, steps) for piece in self.pieces) else None


def _in_place(piece: Piece, steps: Sequence[int]) -> bool:
    along = list(zip(piece.axes, steps, strict=True))
    starts = sum(axis.start * step for axis, step in along)
    return piece.offset == starts and all(axis.size <= 1 or axis.stride == axis.step * step for axis, step in along)


def whole(key: str, shape: Sequence[int]) -> Expression:
    """Return the source tensor `key` as it is."""
    if 0 in shape:
        return Expression(tuple(shape), (Piece(key, 0, tuple(Axis(n, 0, 0, 1) for n in shape)),))
    axes = (Axis(n, stride, 0, 1) for n, stride in zip(shape, strides(shape), strict=True))
    return Expression(tuple(shape), (Piece(key, 0, tuple(axes)),))


def strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Row-major strides, in elements."""
    found, step = [], 1
    for count in reversed(shape):
        found.append(step)
        step *= count
    return tuple(reversed(found))


def cut(x: Expression, dim: int, start: int, stop: int, step: int = 1) -> Expression:
    """`x[..., start:stop:step, ...]` in dimension `dim`."""
    count = len(range(start, stop, step))
    pieces = (_cut_piece(piece, dim, start, stop, step) for piece in x.pieces)
    return Expression(_with(x.shape, dim, count), tuple(piece for piece in pieces if piece is not None))


def _cut_piece(piece: Piece, dim: int, start: int, stop: int, step: int) -> Piece | None:
    """Return the part of a piece that lies on start, start+step, ... < stop: two arithmetic progressions meet in a
    third.
    """
    axis = piece.axes[dim]
    common = math.gcd(axis.step, step)
    distance = start - axis.start
    if distance % common:
        return None
    period = step // common
    first = distance // common * pow(axis.step // common, -1, period) % period
    lowest = max(0, -(-distance // axis.step))
    first += -(-(lowest - first) // period) * period if lowest > first else 0
    last = min(axis.size - 1, (stop - 1 - axis.start) // axis.step)
    if first > last:
        return None
    at = (axis.start + axis.step * first - start) // step
    kept = Axis((last - first) // period + 1, axis.stride * period, at, axis.step * period // step)
    return Piece(piece.key, piece.offset + first * axis.stride, _with(piece.axes, dim, kept))


def join(parts: Sequence[Expression], dim: int) -> Expression:
    """Concatenates along `dim`.

    Raises:
        ValueError: the other dimensions differ.
    """
    if len({_with(part.shape, dim, 0) for part in parts}) != 1:
        raise ValueError(f"cannot concatenate {_shapes(parts)} along {dim}")
    pieces: list[Piece] = []
    position = 0
    for part in parts:
        pieces += _moved(part.pieces, dim, position, 1)
        position += part.shape[dim]
    return Expression(_with(parts[0].shape, dim, position), tuple(pieces))


def stack(parts: Sequence[Expression], dim: int = 0) -> Expression:
    """Stacks along a new dimension `dim`.

    Raises:
        ValueError: the shapes differ.
    """
    if len({part.shape for part in parts}) != 1:
        raise ValueError(f"cannot stack {_shapes(parts)}")
    pieces = [
        Piece(p.key, p.offset, (*p.axes[:dim], Axis(1, 0, number, 1), *p.axes[dim:]))
        for number, part in enumerate(parts)
        for p in part.pieces
    ]
    shape = parts[0].shape
    return Expression((*shape[:dim], len(parts), *shape[dim:]), tuple(pieces))


def unstack(x: Expression, dim: int = 0) -> list[Expression]:
    """Return the slices of `x` along `dim`, without that dimension."""
    shape = (*x.shape[:dim], *x.shape[dim + 1 :])
    slices: list[list[Piece]] = [[] for _ in range(x.shape[dim])]
    for piece in x.pieces:
        axis = piece.axes[dim]
        rest = (*piece.axes[:dim], *piece.axes[dim + 1 :])
        for number in range(axis.size):
            at = axis.start + axis.step * number
            slices[at].append(Piece(piece.key, piece.offset + axis.stride * number, rest))
    return [Expression(shape, tuple(pieces)) for pieces in slices]


def split(x: Expression, sizes: Iterable[int], dim: int) -> list[Expression]:
    """Consecutive parts of `x` along `dim`.

    Raises:
        ValueError: the sizes do not add up to that dimension.
    """
    ends = [0]
    for size in sizes:
        ends.append(ends[-1] + size)
    if ends[-1] != x.shape[dim]:
        raise ValueError(f"cannot split {list(x.shape)} along {dim} into {len(ends) - 1} parts of {ends[-1]} in all")
    return [cut(x, dim, start, stop) for start, stop in pairwise(ends)]


def halves(x: Expression, dim: int) -> list[Expression]:
    """Return the two halves of `x` along `dim`.

    Raises:
        ValueError: that dimension is odd.
    """
    return split(x, [x.shape[dim] // 2] * 2, dim)


def transpose(x: Expression, dim0: int = -2, dim1: int = -1) -> Expression:
    """Swaps two dimensions; the last two unless told."""
    order = list(range(len(x.shape)))
    order[dim0], order[dim1] = order[dim1], order[dim0]
    pieces = (Piece(p.key, p.offset, tuple(p.axes[i] for i in order)) for p in x.pieces)
    return Expression(tuple(x.shape[i] for i in order), tuple(pieces))


def deinterleave(x: Expression, dim: int) -> Expression:
    """a0 b0 a1 b1 ... along `dim` becomes a0 a1 ... b0 b1 ..."""
    return join([cut(x, dim, 0, x.shape[dim], 2), cut(x, dim, 1, x.shape[dim], 2)], dim)


def interleave(x: Expression, dim: int) -> Expression:
    """Return the inverse of `deinterleave`.

    Raises:
        ValueError: that dimension is odd.
    """
    pieces = (_moved(half.pieces, dim, number, 2) for number, half in enumerate(halves(x, dim)))
    return Expression(x.shape, tuple(piece for moved in pieces for piece in moved))


def _moved(pieces: Iterable[Piece], dim: int, start: int, step: int) -> Iterator[Piece]:
    """Yield the pieces at start + step * position along `dim`."""
    for piece in pieces:
        axis = piece.axes[dim]
        there = Axis(axis.size, axis.stride, start + step * axis.start, step * axis.step)
        yield Piece(piece.key, piece.offset, _with(piece.axes, dim, there))


def _with(values: tuple[_T, ...], dim: int, value: _T) -> tuple[_T, ...]:
    place = dim % len(values)
    return (*values[:place], value, *values[place + 1 :])


def _shapes(parts: Sequence[Expression]) -> str:
    return " and ".join(sorted({str(list(part.shape)) for part in parts}))
