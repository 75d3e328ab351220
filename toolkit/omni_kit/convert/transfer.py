"""Moves the bytes of one output tensor from the source files to its place, by ranges and with bounded memory."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from threading import Condition

import numpy as np

from omni_kit.convert.casts import Bits, cast
from omni_kit.convert.plan import Output
from omni_kit.layout.headers import DTYPE_BITS, TensorInfo
from omni_kit.upstream.transformers.recipes.expression import Expression, Piece, cut, stack, strides

_CHUNK = 1 << 18
_SLAB = 32 << 20
_SHORTEST_RUN = 32 << 10  # below this, gathering in memory is faster than one call a run

Run = tuple[int, int, int]  # element in the source, element in the output, how many


class Budget:
    """Bytes that buffers may take at one time, over all threads; one that is larger alone waits for all others."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._used = 0
        self._changed = Condition()

    @contextmanager
    def reserve(self, size: int) -> Iterator[None]:
        """Hold `size` bytes, and wait for them first; a request above the limit waits until nothing else is held."""
        with self._changed:
            self._changed.wait_for(lambda: not self._used or self._used + size <= self._limit)
            self._used += size
        try:
            yield
        finally:
            with self._changed:
                self._used -= size
                self._changed.notify_all()


class Sources:
    """The source tensors, read by ranges."""

    def __init__(self, tensors: Mapping[str, TensorInfo]) -> None:
        self.tensors = tensors
        self._files = {file: os.open(file, os.O_RDONLY) for file in {info.file for info in tensors.values()}}

    def place(self, key: str) -> tuple[int, int]:
        """Return the file descriptor and the byte where a tensor begins."""
        info = self.tensors[key]
        return self._files[info.file], info.begin

    def close(self) -> None:
        """Close all files."""
        for descriptor in self._files.values():
            os.close(descriptor)


def transfer(output: Output, sources: Sources, target: int, begin: int, budget: Budget) -> None:
    """Write one tensor.

    Args:
        target: descriptor of the file to write to.
        begin: the byte in it where the tensor begins.
        budget: for buffers; contiguous stretches go without one.

    Raises:
        OSError: reading or writing fails.
    """
    item, size = DTYPE_BITS[output.source_dtype] // 8, DTYPE_BITS[output.dtype] // 8
    if output.passes_through:
        descriptor, at = sources.place(output.expression.pieces[0].key)
        copy_range(descriptor, at, target, begin, output.size)
        return
    planned = runs(output.expression, _SHORTEST_RUN // item)
    if planned is None:
        _gather(output, sources, target, begin, budget)
        return
    for key, stretches in planned:
        descriptor, at = sources.place(key)
        for there, here, count in stretches:
            span = descriptor, at + there * item, target, begin + here * size, count * item
            if size == item and output.dtype == output.source_dtype:
                copy_range(*span)
            else:
                _cast_range(*span, output)


def _cast_range(source: int, there: int, target: int, here: int, count: int, output: Output) -> None:
    kind = np.dtype(f"u{DTYPE_BITS[output.source_dtype] // 8}")
    for part in chunks(source, there, count):
        bits = cast(np.frombuffer(part, kind), output.source_dtype, output.dtype)
        write_all(target, bits.view(np.uint8).data, here)
        here += bits.nbytes


def copy_range(source: int, there: int, target: int, here: int, count: int) -> None:
    """Copy `count` bytes between two files, inside the kernel where that can do it.

    Raises:
        OSError: the source ends too early, or the disk is full.
    """
    done = _copy_in_kernel(source, there, target, here, count)
    there, here, count = there + done, here + done, count - done
    for part in chunks(source, there, count):
        write_all(target, part, here)
        here += len(part)


def _copy_in_kernel(source: int, there: int, target: int, here: int, count: int) -> int:
    """Return how many bytes the kernel copied itself: none on systems and between file systems without support."""
    done = 0
    with suppress(AttributeError, OSError):  # what it could not copy is read and written, with errors of its own
        while done < count:
            copied = os.copy_file_range(source, target, count - done, there + done, here + done)
            if not copied:
                break
            done += copied
    return done


def chunks(descriptor: int, at: int, count: int) -> Iterator[memoryview]:
    """`count` bytes of a file from byte `at`, part by part; a part is valid until the next one.

    Raises:
        OSError: the file ends before.
    """
    buffer = memoryview(bytearray(min(count, _CHUNK)))
    while count:
        part = buffer[: min(count, _CHUNK)]
        read_into(descriptor, part, at)
        yield part
        at, count = at + len(part), count - len(part)


def write_all(target: int, content: memoryview, here: int) -> None:
    """Write all of `content` at byte `here`."""
    while content:
        written = os.pwrite(target, content, here)
        content, here = content[written:], here + written


def runs(x: Expression, shortest: int) -> list[tuple[str, Iterator[Run]]] | None:
    """Return the contiguous stretches that make up a tensor; None if any is shorter than `shortest` and not a whole
    piece.
    """
    steps = strides(x.shape)
    found: list[tuple[str, Iterator[Run]]] = []
    for piece in x.pieces:
        outer, length = _merged(piece, steps)
        if outer and length < shortest:
            return None
        start = sum(axis.start * step for axis, step in zip(piece.axes, steps, strict=True))
        found.append((piece.key, _stretches(outer, piece.offset, start, length)))
    return found


def _merged(piece: Piece, steps: Sequence[int]) -> tuple[list[tuple[int, int, int]], int]:
    """Return the loops around the longest stretch that is contiguous on both sides, as (count, source, output)
    steps.
    """
    loops = [(a.size, a.stride, a.step * s) for a, s in zip(piece.axes, steps, strict=True) if a.size != 1]
    length = 1
    while loops and loops[-1][1] == length and loops[-1][2] == length:
        length *= loops.pop()[0]
    return loops, length


def _stretches(loops: Sequence[tuple[int, int, int]], there: int, here: int, length: int) -> Iterator[Run]:
    if not loops:
        yield there, here, length
        return
    count, source, output = loops[0]
    for number in range(count):
        yield from _stretches(loops[1:], there + number * source, here + number * output, length)


def _gather(output: Output, sources: Sources, target: int, begin: int, budget: Budget) -> None:
    """Build the tensor slab by slab along its first dimension, each in memory, and write each whole."""
    x, item = output.expression, DTYPE_BITS[output.dtype] // 8
    if not x.size:
        return
    if not x.shape:
        x = stack([x])
    rows = slab_rows(x, DTYPE_BITS[output.source_dtype] // 8)
    row_size = x.size // x.shape[0] * item
    for first in range(0, x.shape[0], rows):
        slab = cut(x, 0, first, min(first + rows, x.shape[0]))
        with budget.reserve(2 * slab.size * max(item, DTYPE_BITS[output.source_dtype] // 8)):
            bits = cast(collect(slab, sources, output.source_dtype), output.source_dtype, output.dtype)
            write_all(target, bits.reshape(-1).view(np.uint8).data, begin + first * row_size)


def slab_rows(x: Expression, item: int) -> int:
    """Return how many rows to build at a time; all, if a few rows would need a whole source tensor."""
    row = max(1, x.size // x.shape[0] * item)
    rows = max(1, min(x.shape[0], _SLAB // row))
    needed = sum(stop - start for start, stop in spans(cut(x, 0, 0, rows)).values()) * item
    return rows if needed <= 4 * rows * row else x.shape[0]


def collect(x: Expression, sources: Sources, dtype: str) -> Bits:
    """Return a tensor in memory, as unsigned integers of its element size."""
    kind = np.dtype(f"u{DTYPE_BITS[dtype] // 8}")
    result = np.empty(x.shape, kind)
    parts = {key: (start, _read(sources, key, start, stop, kind)) for key, (start, stop) in spans(x).items()}
    for piece in x.pieces:
        start, bits = parts[piece.key]
        counts, steps = [a.size for a in piece.axes], [a.stride * kind.itemsize for a in piece.axes]
        view = np.lib.stride_tricks.as_strided(bits[piece.offset - start :], counts, steps, writeable=False)
        result[tuple(slice(a.start, a.start + a.step * (a.size - 1) + 1, a.step) for a in piece.axes)] = view
    return result


def spans(x: Expression) -> dict[str, tuple[int, int]]:
    """For each source tensor, the elements from the first to the last that are needed."""
    found: dict[str, tuple[int, int]] = {}
    for piece in x.pieces:
        start, stop = found.get(piece.key, (piece.offset, piece.offset))
        found[piece.key] = min(start, piece.offset), max(stop, piece.offset + piece.span)
    return found


def _read(sources: Sources, key: str, start: int, stop: int, kind: "np.dtype[np.unsignedinteger]") -> Bits:
    descriptor, begin = sources.place(key)
    buffer = memoryview(bytearray((stop - start) * kind.itemsize))
    read_into(descriptor, buffer, begin + start * kind.itemsize)
    return np.frombuffer(buffer, kind)


def read_into(descriptor: int, buffer: memoryview, at: int) -> None:
    """Fill a buffer from a file.

    Raises:
        OSError: the file ends before.
    """
    while buffer:
        got = os.preadv(descriptor, [buffer], at)
        if not got:
            raise OSError(0, "a file became shorter while it was read")
        buffer, at = buffer[got:], at + got
