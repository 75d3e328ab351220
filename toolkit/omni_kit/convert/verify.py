"""Reads the output again and proves that the source can be rebuilt from it, by comparing content hashes.

Every source tensor is rebuilt block by block through the inverse of what was planned; the output is read through its
own headers, as any reader would read it.
"""

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from omni_kit.convert.casts import cast
from omni_kit.convert.plan import ConversionPlan, Output
from omni_kit.convert.transfer import Budget, Sources, chunks, collect, slab_rows
from omni_kit.errors import BadInput
from omni_kit.layout.headers import DTYPE_BITS, TensorInfo, read_header
from omni_kit.upstream.transformers.recipes.expression import Axis, Expression, Piece, cut, stack, strides, whole

Inverse = dict[str, tuple[Expression, Output]]


def inverse(plan: ConversionPlan) -> Inverse:
    """Return every source tensor as an expression over the outputs, with an output that it went to."""
    pieces: dict[str, list[Piece]] = {key: [] for key in plan.sources}
    into: dict[str, Output] = {}
    for output in plan.outputs:
        steps = strides(output.expression.shape)
        for piece in output.expression.pieces:
            pieces[piece.key].append(_back(piece, output.name, steps, plan.sources[piece.key].shape))
            into[piece.key] = output
    return {key: (Expression(plan.sources[key].shape, tuple(parts)), into[key]) for key, parts in pieces.items()}


def _back(piece: Piece, name: str, steps: Sequence[int], shape: tuple[int, ...]) -> Piece:
    """Return a piece seen from the source: where in the output lies what was taken from here.

    Each axis runs along one dimension of the source, and its stride says which: a step inside a dimension is shorter
    than that dimension.
    """
    offset = sum(axis.start * step for axis, step in zip(piece.axes, steps, strict=True))
    moving = [(axis, axis.step * step) for axis, step in zip(piece.axes, steps, strict=True) if axis.size > 1]
    axes: list[Axis] = []
    rest = piece.offset
    for count, stride in zip(shape, strides(shape), strict=True):
        start, rest = divmod(rest, stride) if stride else (0, rest)
        along = [(a, there) for a, there in moving if count > 1 and stride <= a.stride < stride * count]
        axes += [Axis(a.size, there, start, a.stride // stride) for a, there in along] or [Axis(1, 0, start, 1)]
    return Piece(name, offset, tuple(axes))


def open_outputs(plan: ConversionPlan, folder: Path) -> Sources:
    """Return the files that were written, as their own headers describe them.

    Raises:
        BadInput: a tensor is not there, or not as planned.
    """
    tensors: dict[str, TensorInfo] = {}
    for shard in plan.shards:
        tensors |= read_header(folder / shard.name)[0]
    for output in plan.outputs:
        info = tensors.get(output.name)
        if info is None or (info.dtype, info.shape) != (output.dtype, output.expression.shape):
            raise BadInput(f"{folder} does not hold {output.name} as it was planned", "convert again")
    return Sources(tensors)


def same_content(
    key: str, rebuilt: Expression, output: Output, before: Sources, after: Sources, budget: Budget
) -> bool:
    """Return whether one source tensor, rebuilt from the output, has the content of the source."""
    if output.passes_through:
        return _hash(_raw(before, key)) == _hash(_raw(after, output.name))
    return _same_blocks(before.tensors[key], key, rebuilt, output, before, after, budget)


def _same_blocks(
    info: TensorInfo, key: str, rebuilt: Expression, output: Output, before: Sources, after: Sources, budget: Budget
) -> bool:
    original = whole(key, info.shape)
    if not original.size:
        return True
    if not info.shape:
        original, rebuilt = stack([original]), stack([rebuilt])
    item = max(DTYPE_BITS[info.dtype], DTYPE_BITS[output.dtype]) // 8
    rows = slab_rows(rebuilt, item)
    here, there = hashlib.sha256(), hashlib.sha256()
    for first in range(0, original.shape[0], rows):
        block = [cut(x, 0, first, min(first + rows, original.shape[0])) for x in (original, rebuilt)]
        with budget.reserve(3 * block[0].size * item):
            here.update(_bytes(cast(collect(block[0], before, info.dtype), info.dtype, output.dtype)))
            there.update(_bytes(collect(block[1], after, output.dtype)))
    return here.digest() == there.digest()


def _raw(sources: Sources, name: str) -> Iterator[memoryview]:
    descriptor, begin = sources.place(name)
    info = sources.tensors[name]
    return chunks(descriptor, begin, info.end - info.begin)


def _hash(parts: Iterator[memoryview]) -> bytes:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.digest()


def _bytes(bits: "np.typing.NDArray[np.unsignedinteger]") -> memoryview:
    return bits.reshape(-1).view(np.uint8).data
