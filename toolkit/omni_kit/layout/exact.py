"""Determine whether the experts of one group can be converted to another layout without loss."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from omni_kit.layout.checkpoint import Checkpoint
from omni_kit.layout.disk import DiskReading
from omni_kit.layout.groups import ExpertGroup
from omni_kit.layout.quantised import packs, unpacked
from omni_kit.layout.taxonomy import INTERLEAVED, PAIRED, TURNED, Disk, plain
from omni_kit.upstream.model import Model
from omni_kit.upstream.transformers.recipes.running import SCALE

BIAS = "_bias"
# A layout whose experts are told by numbers, or stacked part by part: rearranging it needs no knowledge of the model.
_PLAIN = frozenset({Disk.per_expert, Disk.per_expert_no_gate, Disk.stacked_unfused})
MOVABLE = _PLAIN | PAIRED
_NUMBER_AHEAD = re.compile(r"^(?:expert_)?[0-9]+\.")


def obstacle(group: ExpertGroup, reading: DiskReading, checkpoint: Checkpoint, block: int | None) -> str:
    """Return why the experts of a group cannot be converted without loss; empty if they can.

    Both check-layout and convert ask here. Of a layout that has no other form nothing is said.

    Args:
        block: rows that share one FP8 scale, as the config says; None if it does not.
    """
    if (found := packed(group, checkpoint)) or reading.disk not in MOVABLE:
        return found
    return next(_obstacles(group, reading, checkpoint, block), "")


def packed(group: ExpertGroup, checkpoint: Checkpoint) -> str:
    """Return why a group's packed weights cannot be converted; empty if they are not packed."""
    return next((found for key in group.members() if (found := _packed(key, checkpoint))), "")


def packed_weight(checkpoint: Checkpoint) -> str:
    """Return the first weight of a checkpoint, of experts or not, that is packed, and how; empty if none is."""
    weights = (key for key in checkpoint.tensors if key.endswith(".weight") or unpacked(key) != key)
    return next((found for key in weights if (found := _packed(key, checkpoint))), "")


def _packed(key: str, checkpoint: Checkpoint) -> str:
    dtype = checkpoint.dtype(key)
    # bytes with a scale for each block are FP8 numbers, one each
    if not packs(key, dtype) or f"{key}{SCALE}" in checkpoint.tensors:
        return ""
    kind = "MXFP4: gate and up share bytes there" if key.endswith("_blocks") else f"{dtype or 'bytes'}"
    return f"{key} is packed as {kind}"


def open_without_model(reading: DiskReading, checkpoint: Checkpoint) -> str:
    """Return which part of a layout is unknown without the model; empty if none is."""
    if reading.disk not in PAIRED or checkpoint.canonical:
        return ""
    biases = ", or in which form the biases are stored" if reading.disk is Disk.fused_transposed_bias else ""
    return f"config.json is required to know whether gate and up are interleaved{biases}"


def keys_of(group: ExpertGroup, reading: DiskReading, ending: str) -> list[list[str]]:
    """Return the names of the weights, or of tensors next to them, by leaf, in the experts' order, existing or not."""
    if group.split:
        return [[f"{key}{ending}" for _, key in sorted(group.split[leaf].items())] for leaf in reading.names]
    return [[f"{group.stacked[leaf]}{ending}"] for leaf in reading.names]


def block_rows(model: Model) -> int | None:
    """Return how many rows share one FP8 scale according to the config; None if it has no such entry."""
    given = model.given.get("quantization_config")
    sizes = given.get("weight_block_size") if isinstance(given, Mapping) else None
    return sizes[0] if isinstance(sizes, list) and sizes and isinstance(sizes[0], int) else None


def _obstacles(group: ExpertGroup, reading: DiskReading, checkpoint: Checkpoint, block: int | None) -> Iterator[str]:
    prefix = group.prefix
    keys = {ending: keys_of(group, reading, ending) for ending in ("", BIAS, SCALE)}
    for ending, leaves in keys.items():
        yield from _half(leaves, checkpoint)
        parts = [[key for key in leaf if key in checkpoint.tensors] for leaf in leaves]
        if any(parts) and ending == SCALE and reading.disk in INTERLEAVED:
            yield f"{prefix}: gate and up are interleaved, and one scale covers a block of both"
        yield from _uneven(parts, checkpoint)
    known = {key for leaves in keys.values() for leaf in leaves for key in leaf}
    yield from _leftovers(group, reading, known)
    if any(key in checkpoint.tensors for key in keys[SCALE][0]):
        yield from _blocks(prefix, reading, keys[""][0][0], checkpoint, block)


def _half(leaves: Sequence[Sequence[str]], checkpoint: Checkpoint) -> Iterator[str]:
    """Yield a bias or a scale that some experts, or some of their parts, have, and others have not."""
    there = [key for leaf in leaves for key in leaf if key in checkpoint.tensors]
    lost = next((key for leaf in leaves for key in leaf if key not in checkpoint.tensors), None)
    if there and lost:
        yield f"{lost} is missing, {there[0]} is there"


def _uneven(parts: Sequence[Sequence[str]], checkpoint: Checkpoint) -> Iterator[str]:
    """Yield tensors that would be one, and differ in dtype, or in shape from expert to expert."""
    for joined in (parts[:-1], parts[-1:]):
        keys = [key for leaf in joined for key in leaf]
        if other := _other(keys, checkpoint.dtype):
            dtypes = checkpoint.dtype(other), checkpoint.dtype(keys[0])
            yield f"{other} is {dtypes[0]}, {keys[0]} is {dtypes[1]}: a stack has one dtype"
    for leaf in parts:
        if other := _other(leaf, checkpoint.shape):
            shapes = checkpoint.shape(other), checkpoint.shape(leaf[0])
            yield f"{other} is {list(shapes[0] or ())}, {leaf[0]} is {list(shapes[1] or ())}: they cannot be stacked"


def _other(keys: Sequence[str], of: Callable[[str], object]) -> str | None:
    """Return the first key for which something differs from the first one."""
    first = of(keys[0]) if keys else None
    return next((key for key in keys if of(key) != first), None)


def _leftovers(group: ExpertGroup, reading: DiskReading, known: set[str]) -> Iterator[str]:
    """Yield the keys of a weight without a place in another layout: biases and scales of other sorts."""
    stems = tuple(plain(leaf) for leaf in reading.names)
    for key in group.members():
        leaf = _NUMBER_AHEAD.sub("", key.removeprefix(f"{group.prefix}."))
        if key not in known and leaf.startswith(stems):
            yield f"{key} belongs to an expert weight and does not exist in another layout"


def _blocks(prefix: str, reading: DiskReading, weight: str, checkpoint: Checkpoint, block: int | None) -> Iterator[str]:
    """FP8 scales stay exact only if gate and up each have whole blocks of rows."""
    shape, scale = checkpoint.shape(weight), checkpoint.shape(f"{weight}{SCALE}")
    if shape is None or scale is None or reading.disk is Disk.per_expert_no_gate:
        return
    if len(scale) != len(shape):
        yield f"{weight}{SCALE} is {list(scale)}: not one scale per block of rows and columns"
        return
    row, column = (-1, -2) if reading.disk in TURNED else (-2, -1)
    shared = 2 if reading.disk in PAIRED else 1  # gate and up lie in one tensor
    both, scales = 2 * shape[row] // shared, 2 * scale[row] // shared
    size = block or (both // scales if scales and both % scales == 0 else 0)
    # the last block may not be full; where nothing says how large blocks are, they are as long as they are high
    square = block is not None or (size and -(-shape[column] // size) == scale[column])
    if not size or not square or size * scales != both or (both // 2) % size:
        shown = f"blocks of {size} rows" if size and square else f"{scales} blocks"
        yield f"{prefix}: {both // 2} rows of gate do not fill whole {shown}; one scale would cover gate and up"
