"""In which layout one group of experts lies on disk: by its names and by the shapes of its tensors together."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from omni_kit.layout.checkpoint import Checkpoint
from omni_kit.layout.groups import ExpertGroup
from omni_kit.layout.quantised import packs
from omni_kit.layout.taxonomy import (
    CANONICAL_PAIR,
    FLAT,
    NO_GATE,
    PAIRS,
    RETRIEVAL,
    TRIPLES,
    Disk,
    Memory,
    pair_orientation,
    plain,
)
from omni_kit.plurals import counted


@dataclass(frozen=True)
class DiskReading:
    """The layout of one group of keys.

    Attributes:
        disk: None when it is no layout that is known.
        names: the leaves as they are written: (gate_up, down) or (gate, up, down).
        num_experts: 0 where it cannot be seen.
        ambiguous: the file leaves it open; `disk` is then one of the readings.
    """

    disk: Disk | None
    names: tuple[str, ...]
    num_experts: int
    ambiguous: bool
    evidence: tuple[str, ...]
    quantized: str | None = None


def read_disk(group: ExpertGroup, checkpoint: Checkpoint, interleaved: bool) -> DiskReading:
    """Judges one group.

    Args:
        interleaved: gate and up alternate, as the recipe or the module says; shapes never show it. A file that says
            that it is canonical is believed.
    """
    if group.split and any(plain(leaf) in {n for pair in PAIRS for n in pair} for leaf in group.stacked):
        return DiskReading(None, (), 0, False, (f"{group.prefix} has both numbered and stacked experts",))
    if checkpoint.canonical and set(CANONICAL_PAIR) <= group.stacked.keys():
        reading = _marked(group, checkpoint)
    else:
        reading = _split(group, checkpoint) if group.split else _stacked(group, checkpoint, interleaved)
    return replace(reading, quantized=_quantized(group, checkpoint))


def _marked(group: ExpertGroup, checkpoint: Checkpoint) -> DiskReading:
    shape = checkpoint.shape(group.stacked[CANONICAL_PAIR[0]])
    evidence = "the file's metadata says that its experts are canonical"
    return DiskReading(Disk.fused, CANONICAL_PAIR, shape[0] if shape else 0, False, (evidence,))


def _quantized(group: ExpertGroup, checkpoint: Checkpoint) -> str | None:
    if any(leaf.endswith("_blocks") for leaf in group.scales):
        return "mxfp4"
    dtypes = [checkpoint.dtype(key) or "" for key in group.members()]
    if any(packs(key, dtype) for key, dtype in zip(group.members(), dtypes, strict=True)):
        return "packed"
    if any(dtype.startswith("F8") for dtype in dtypes):
        return "fp8"
    return "scaled" if group.scales else None


def _split(group: ExpertGroup, checkpoint: Checkpoint) -> DiskReading:
    numbers = sorted({number for experts in group.split.values() for number in experts})
    count = numbers[-1] + 1
    leaves = {plain(leaf): leaf for leaf in group.split}
    shown = f"{group.prefix}.{'expert_' if group.by_word else ''}{numbers[0]}"
    evidence = (f"{shown}.{next(iter(group.split))} and {counted(len(numbers) - 1, 'more expert')}",)
    if group.by_word:
        return DiskReading(Disk.module_dict, tuple(group.split), count, False, evidence)
    for names in TRIPLES:
        if set(names) <= leaves.keys():
            written = tuple(leaves[name] for name in names)
            widths = sorted(set(_shapes(group, checkpoint, written[0])))
            if len(widths) > 1:
                seen = (*evidence, f"{written[0]} has the shapes {', '.join(str(list(w)) for w in widths)}")
                disk = Disk.per_expert_two_width if len(widths) == 2 else None
                return DiskReading(disk, written, count, False, seen)
            return DiskReading(Disk.per_expert, written, count, False, evidence)
    for pair in NO_GATE:
        if set(pair) == {leaf for leaf in leaves if not leaf.endswith("bias")}:
            return DiskReading(Disk.per_expert_no_gate, tuple(leaves[n] for n in pair), count, False, evidence)
    if leaves.keys() <= {"weight", "bias", ""}:
        return DiskReading(Disk.shared_columns, tuple(group.split), count, False, evidence)
    return DiskReading(None, tuple(group.split), count, False, (f"experts made of {', '.join(sorted(group.split))}",))


def _shapes(group: ExpertGroup, checkpoint: Checkpoint, leaf: str) -> Iterator[tuple[int, ...]]:
    for key in group.split[leaf].values():
        shape = checkpoint.shape(key)
        if shape is not None:
            yield shape


def _stacked(group: ExpertGroup, checkpoint: Checkpoint, interleaved: bool) -> DiskReading:
    leaves = {plain(leaf): leaf for leaf in group.stacked}
    for pair in PAIRS:
        if set(pair) <= leaves.keys():
            return _pair(group, checkpoint, pair, leaves, interleaved)
    for names, disk in (
        *((triple, Disk.stacked_unfused) for triple in TRIPLES),
        (FLAT, Disk.flat_2d),
        (RETRIEVAL, Disk.retrieval),
    ):
        if set(names) <= leaves.keys():
            written = tuple(leaves[name] for name in names)
            shape = checkpoint.shape(group.stacked[written[0]])
            count = shape[0] if shape and disk is Disk.stacked_unfused else 0
            evidence = (f"{group.prefix}.{written[0]} {list(shape) if shape else ''}".strip(),)
            return DiskReading(disk, written, count, False, evidence)
    return DiskReading(None, tuple(group.stacked), 0, False, (f"stacked experts made of {', '.join(sorted(leaves))}",))


def _pair(
    group: ExpertGroup, checkpoint: Checkpoint, pair: tuple[str, str], leaves: dict[str, str], interleaved: bool
) -> DiskReading:
    names = tuple(leaves[name] for name in pair)
    gate_up, down = (checkpoint.shape(group.stacked[name]) for name in names)
    if gate_up is None or down is None:
        seen = f"{group.prefix}.{names[0]} has no known shape, so its orientation is undetermined"
        return DiskReading(Disk.fused, names, 0, True, (seen,))
    evidence = [f"{names[0]} {list(gate_up)}, {names[1]} {list(down)}"]
    has_bias = any(leaf.endswith("bias") and leaf != "bias" for leaf in leaves)
    if interleaved:
        evidence.append("gate and up rows are interleaved according to the recipe or the module; shapes do not show it")
    if names[0].endswith("_blocks"):
        evidence.append("packed blocks with 2I rows, like the stacked weight")
        disk: Disk | None = Disk.fused_interleaved_rows if interleaved else Disk.fused
    else:
        disk = _oriented(pair_orientation(gate_up, down), pair, has_bias, interleaved)
        if disk is None and gate_up[1:] == down[:0:-1] and "attention" in group.prefix:
            evidence.append("attention projections without a gate, outside the canonical form")
            disk = Disk.fused_renamed
    return DiskReading(disk, names, gate_up[0], False, tuple(evidence))


def _oriented(orientation: Memory, pair: tuple[str, str], has_bias: bool, interleaved: bool) -> Disk | None:
    if orientation is Memory.transposed:
        if interleaved:
            return Disk.fused_transposed_interleaved
        return Disk.fused_transposed_bias if has_bias else Disk.fused_transposed
    if orientation is Memory.canonical and not has_bias:
        if interleaved:
            return Disk.fused_interleaved_rows
        return Disk.fused if pair == CANONICAL_PAIR else Disk.fused_renamed
    return None
