"""Experts in any layout to the canonical form, and from there to the form in memory."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from omni_kit.errors import BadInput
from omni_kit.layout.checkpoint import Checkpoint
from omni_kit.layout.disk import DiskReading
from omni_kit.layout.exact import BIAS, MOVABLE, keys_of
from omni_kit.layout.groups import ExpertGroup
from omni_kit.layout.taxonomy import CANONICAL_PAIR, INTERLEAVED, PAIRED, TURNED, Disk, Memory
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
    """Return whether the layout has a canonical form."""
    return reading.disk in MOVABLE and not reading.ambiguous


def decode(group: ExpertGroup, reading: DiskReading, checkpoint: Checkpoint) -> Experts:
    """Return the experts of one group in canonical form; `obstacle` has confirmed that nothing is lost."""
    found: dict[str, Expression] = {}
    keys: set[str] = set()
    for ending in ("", BIAS, SCALE):
        leaves = [[key for key in leaf if key in checkpoint.tensors] for leaf in keys_of(group, reading, ending)]
        if not all(leaves):
            continue
        tensors = [[whole(key, checkpoint.shape(key) or ()) for key in leaf] for leaf in leaves]
        for name, tensor in _canonical(reading, tensors, ending):
            found[f"{name}{ending}"] = tensor
            keys |= {piece.key for piece in tensor.pieces}
    return Experts(found, frozenset(keys))


def _canonical(reading: DiskReading, leaves: list[list[Expression]], ending: str) -> Iterator[tuple[str, Expression]]:
    """Canonical names and tensors; for a bias all rows are in dimension 1 and there is nothing to transpose."""
    if reading.disk in PAIRED:
        for name, (tensor,) in zip(CANONICAL_PAIR, leaves, strict=True):
            x = transpose(tensor) if reading.disk in TURNED and ending != BIAS else tensor
            alternates = reading.disk in INTERLEAVED and name == CANONICAL_PAIR[0]
            yield name, deinterleave(x, 1) if alternates else x
        return
    stacks = [parts[0] if reading.disk is Disk.stacked_unfused else stack(parts) for parts in leaves]
    if reading.disk is Disk.per_expert_no_gate:
        yield from zip(("up_proj", "down_proj"), stacks, strict=True)
        return
    gate, up, down = stacks
    yield from zip(CANONICAL_PAIR, (join([gate, up], 1), down), strict=True)


def encode(experts: Experts, memory: Memory, names: tuple[str, str]) -> dict[str, Expression]:
    """Return the experts as a module holds them: leaf -> tensor.

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
                raise BadInput(
                    f"{name} cannot be reordered: one block's scale would cover interleaved gate and up rows"
                )
            x = interleave(x, 1)
        if memory.startswith("transposed") and ending != BIAS:
            x = transpose(x)
        found[leaf] = x
    return found
