"""Experts in any layout to the canonical form, and from there to the form in memory."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from omni_kit.errors import BadInput
from omni_kit.layout.checkpoint import Checkpoint
from omni_kit.layout.disk import DiskReading
from omni_kit.layout.groups import ExpertGroup
from omni_kit.layout.taxonomy import CANONICAL_PAIR, Disk, Memory
from omni_kit.upstream.transformers.recipes.expression import (
    Expression,
    deinterleave,
    interleave,
    join,
    stack,
    transpose,
    whole,
)
from omni_kit.upstream.transformers.recipes.running import SCALE

BIAS = "_bias"
_TRANSPOSED = {Disk.fused_transposed, Disk.fused_transposed_bias, Disk.fused_transposed_interleaved}
_INTERLEAVED = {Disk.fused_interleaved_rows, Disk.fused_transposed_interleaved}
_PAIRED = {Disk.fused, Disk.fused_renamed} | _TRANSPOSED | _INTERLEAVED
_DECODED = {Disk.per_expert, Disk.per_expert_no_gate, Disk.stacked_unfused} | _PAIRED


@dataclass(frozen=True)
class Experts:
    """One container's experts in canonical form.

    Attributes:
        tensors: gate_up_proj [E, 2I, H] and down_proj [E, H, I], or without a gate up_proj [E, I, H] and down_proj;
            `<name>_bias` [E, rows] and `<name>_scale_inv` [E, row blocks, column blocks] where the checkpoint has them.
        keys: the keys that they are made of.
    """

    tensors: Mapping[str, Expression]
    keys: frozenset[str] = field(default=frozenset())


def decodable(reading: DiskReading) -> bool:
    """Whether the layout has a canonical form."""
    return reading.disk in _DECODED and not reading.ambiguous


def decode(group: ExpertGroup, reading: DiskReading, checkpoint: Checkpoint, block: int | None) -> Experts:
    """The experts of one group in canonical form.

    Args:
        block: rows that share one FP8 scale, as the config says; None where it does not.

    Raises:
        BadInput: a bias or a scale has no exact place in the canonical form.
    """
    if reading.quantized == "mxfp4":
        raise BadInput(f"{group.prefix} is packed as MXFP4: gate and up share bytes there", "dequantise it first")
    found: dict[str, Expression] = {}
    keys: set[str] = set()
    for ending in ("", BIAS, SCALE):
        tensors = {leaf: _leaf(group, leaf, ending, checkpoint) for leaf in reading.names}
        present = {leaf: parts for leaf, parts in tensors.items() if parts}
        if not present:
            continue
        if ending == SCALE and reading.disk in _INTERLEAVED:
            raise BadInput(f"{group.prefix}: gate and up alternate, and one scale covers a block of both")
        lost = [leaf for leaf in reading.names if leaf not in present]
        if lost:
            raise BadInput(f"{group.prefix}: {lost[0]} has no {ending.strip('_')}, {next(iter(present))} has one")
        for name, tensor in _canonical(reading, list(present.values()), ending):
            found[f"{name}{ending}"] = tensor
            keys |= {piece.key for piece in tensor.pieces}
    first = "gate_up_proj"
    if f"{first}{SCALE}" in found:
        _check_blocks(group.prefix, found[first].shape[1], found[f"{first}{SCALE}"].shape[1], block)
    return Experts(found, frozenset(keys))


def _leaf(group: ExpertGroup, leaf: str, ending: str, checkpoint: Checkpoint) -> list[Expression]:
    """The tensors of one leaf, expert by expert or as one stack; empty when the checkpoint has none."""
    if group.split:
        names = [f"{key}{ending}" for _, key in sorted(group.split[leaf].items())]
    else:
        names = [f"{group.stacked[leaf]}{ending}"]
    there = [name for name in names if name in checkpoint.tensors]
    if there and len(there) != len(names):
        missing = next(name for name in names if name not in checkpoint.tensors)
        raise BadInput(f"{missing} is missing, the other experts have theirs")
    return [whole(name, checkpoint.shape(name) or ()) for name in there]


def _canonical(reading: DiskReading, leaves: list[list[Expression]], ending: str) -> Iterator[tuple[str, Expression]]:
    """Canonical names and tensors; for a bias all rows are in dimension 1 and there is nothing to transpose."""
    if reading.disk in _PAIRED:
        for name, (tensor,) in zip(CANONICAL_PAIR, leaves, strict=True):
            x = transpose(tensor) if reading.disk in _TRANSPOSED and ending != BIAS else tensor
            alternates = reading.disk in _INTERLEAVED and name == CANONICAL_PAIR[0]
            yield name, deinterleave(x, 1) if alternates else x
        return
    stacks = [parts[0] if reading.disk is Disk.stacked_unfused else stack(parts) for parts in leaves]
    if reading.disk is Disk.per_expert_no_gate:
        yield from zip(("up_proj", "down_proj"), stacks, strict=True)
        return
    gate, up, down = stacks
    yield from zip(CANONICAL_PAIR, (join([gate, up], 1), down), strict=True)


def _check_blocks(prefix: str, rows: int, scales: int, block: int | None) -> None:
    """FP8 scales stay exact only if gate and up each have whole blocks of rows."""
    size = block or (rows // scales if scales and rows % scales == 0 else 0)
    if not size or size * scales != rows or (rows // 2) % size:
        shown = f"blocks of {size} rows" if size else f"{scales} blocks"
        raise BadInput(
            f"{prefix}: {rows // 2} rows of gate are not whole {shown}; one scale would cover gate and up",
            "dequantise the checkpoint first",
        )


def encode(experts: Experts, memory: Memory, names: tuple[str, str]) -> dict[str, Expression]:
    """The experts as a module holds them: leaf -> tensor.

    Args:
        memory: how the module holds them; a layout without a canonical pair leaves them canonical.
        names: the module's leaves for gate_up and down, with the `.weight` of a module where it has one.

    Raises:
        BadInput: block scales cannot follow rows that alternate.
    """
    found: dict[str, Expression] = {}
    for name, tensor in experts.tensors.items():
        base = next((n for n in CANONICAL_PAIR if name.startswith(n)), "")
        ending = name.removeprefix(base)
        leaf = dict(zip(CANONICAL_PAIR, names, strict=True)).get(base, base) + ending
        x = tensor
        if memory is Memory.transposed_interleaved and base == CANONICAL_PAIR[0]:
            if ending == SCALE:
                raise BadInput(f"{name} cannot follow rows that alternate: a block's scale would cover gate and up")
            x = interleave(x, 1)
        if memory.startswith("transposed") and ending != BIAS:
            x = transpose(x)
        found[leaf] = x
    return found
