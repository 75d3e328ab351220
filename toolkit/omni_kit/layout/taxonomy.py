"""The layouts of expert weights, on disk and in memory, and what turns one into the canonical form.

E experts, H hidden size, I intermediate size of one expert. Canonical is gate_up_proj [E, 2I, H], gate rows first, and
down_proj [E, H, I].
"""

from collections.abc import Mapping
from enum import StrEnum

from omni_kit.layout.quantised import unpacked


class Disk(StrEnum):
    """The layout of a subtree's experts in the file."""

    per_expert = "per-expert"
    per_expert_no_gate = "per-expert-no-gate"
    per_expert_two_width = "per-expert-two-width"
    fused = "fused"
    fused_renamed = "fused-renamed"
    fused_transposed = "fused-transposed"
    fused_transposed_bias = "fused-transposed-bias"
    fused_transposed_interleaved = "fused-transposed-interleaved"
    fused_interleaved_rows = "fused-interleaved-rows"
    stacked_unfused = "stacked-unfused"
    module_dict = "module-dict"
    flat_2d = "flat-2d"
    retrieval = "retrieval"
    shared_columns = "shared-columns"
    none = "none"


TURNED = frozenset({Disk.fused_transposed, Disk.fused_transposed_bias, Disk.fused_transposed_interleaved})
INTERLEAVED = frozenset({Disk.fused_interleaved_rows, Disk.fused_transposed_interleaved})
# Two stacks, gate and up in one.
PAIRED = frozenset({Disk.fused, Disk.fused_renamed}) | TURNED | INTERLEAVED


class Memory(StrEnum):
    """The layout of the experts in the module."""

    canonical = "canonical"
    canonical_renamed = "canonical-renamed"
    canonical_two_width = "canonical-two-width"
    no_gate = "no-gate"
    transposed = "transposed"
    transposed_bias = "transposed-bias"
    transposed_interleaved = "transposed-interleaved"
    module_dict = "module-dict"
    flat_2d = "flat-2d"
    retrieval = "retrieval"
    shared_columns = "shared-columns"
    none = "none"


class Converter(StrEnum):
    """The conversion from the disk layout to the canonical form."""

    none = "none"
    merge_concat = "merge-concat"
    merge = "merge"
    two_width_split = "two-width-split"
    rename = "rename"
    transpose = "transpose"
    transpose_bias = "transpose-bias"
    transpose_deinterleave = "transpose-deinterleave"
    deinterleave_rows = "deinterleave-rows"
    concat = "concat"
    unsupported = "unsupported"


CONVERTERS: Mapping[Disk, Converter] = {
    Disk.per_expert: Converter.merge_concat,
    Disk.per_expert_no_gate: Converter.merge,
    Disk.per_expert_two_width: Converter.two_width_split,
    Disk.fused: Converter.none,
    Disk.fused_renamed: Converter.rename,
    Disk.fused_transposed: Converter.transpose,
    Disk.fused_transposed_bias: Converter.transpose_bias,
    Disk.fused_transposed_interleaved: Converter.transpose_deinterleave,
    Disk.fused_interleaved_rows: Converter.deinterleave_rows,
    Disk.stacked_unfused: Converter.concat,
}

# Names of stacked tensors, without ".weight": (gate_up, down); (gate, up, down).
CANONICAL_PAIR = ("gate_up_proj", "down_proj")
PAIRS = (
    CANONICAL_PAIR,
    ("gate_and_up_projs", "down_projs"),
    ("fc1", "fc2"),
    ("input_linear", "output_linear"),
    ("w13_weight", "w2_weight"),
    ("w13", "w2"),
)
TRIPLES = (("gate_proj", "up_proj", "down_proj"), ("w1", "w3", "w2"), ("fc1", "fc3", "fc2"))
NO_GATE = (("up_proj", "down_proj"), ("w1", "w2"), ("fc1", "fc2"))
FLAT = ("mlp.w1", "mlp.v1", "mlp.w2")
RETRIEVAL = ("down_embed", "up_embed")
# Boxes of experts that are not called so.
NAMELESS = frozenset(name for names in (*PAIRS, *TRIPLES) for name in names)


def plain(leaf: str) -> str:
    """Return a leaf's name without the `.weight` of a module, packed or not."""
    return unpacked(leaf).removesuffix(".weight")


def pair_orientation(gate_up: tuple[int, ...], down: tuple[int, ...]) -> Memory:
    """Return the orientation of a (gate_up, down) pair; one tensor alone can be ambiguous, the pair never is.

    Canonical is [E, 2I, H] with [E, H, I]; transposed is [E, H, 2I] with [E, I, H].
    """
    if len(gate_up) != 3 or len(down) != 3 or gate_up[0] != down[0]:
        return Memory.none
    if gate_up[1] == 2 * down[2] and gate_up[2] == down[1]:
        return Memory.canonical
    if gate_up[2] == 2 * down[1] and gate_up[1] == down[2]:
        return Memory.transposed
    return Memory.none
