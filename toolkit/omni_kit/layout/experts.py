"""Expert weights in a checkpoint: which keys belong together, and in which layout they lie on disk."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from omni_kit.layout.checkpoint import Checkpoint

_SPLIT = re.compile(r"^(?P<head>.*?)(?P<box>\w*experts)\.(?P<expert>\d+)\.(?P<leaf>.+)$")
_STACKED = re.compile(r"^(?P<head>.*?)(?P<box>\w*experts)\.(?P<leaf>(?!\d)[\w.]+)$")
_NUMBER = re.compile(r"(?<=\.)\d+(?=\.)")
# The spellings of gate, up and down in published checkpoints; order is (gate, up, down).
SPLIT_NAMES: tuple[tuple[str, str, str], ...] = (
    ("gate_proj.weight", "up_proj.weight", "down_proj.weight"),
    ("w1.weight", "w3.weight", "w2.weight"),
    ("fc1.weight", "fc3.weight", "fc2.weight"),
)
FUSED_NAMES: tuple[tuple[str, str], ...] = (("gate_up_proj", "down_proj"), ("gate_up_proj.weight", "down_proj.weight"))


class Disk(StrEnum):
    """How a subtree's experts lie on disk; shapes are (gate_up, down)."""

    per_expert = "per-expert"
    fused = "fused"
    fused_transposed = "fused-transposed"
    fused_transposed_bias = "fused-transposed-bias"
    none = "none"


class Memory(StrEnum):
    """How the module holds them."""

    canonical = "canonical"
    transposed = "transposed"
    none = "none"


class Converter(StrEnum):
    """What brings the layout on disk to VeOmni's canonical form."""

    none = "none"
    merge_concat = "merge-concat"
    transpose = "transpose"
    unsupported = "unsupported"


CONVERTERS: Mapping[Disk, Converter] = {
    Disk.per_expert: Converter.merge_concat,
    Disk.fused: Converter.none,
    Disk.fused_transposed: Converter.transpose,
}


@dataclass
class ExpertGroup:
    """The expert keys below one container in one layer.

    Attributes:
        prefix: the container ("model.layers.3.mlp.experts").
        stacked: leaf -> key of tensors that hold all experts.
        split: leaf -> expert number -> key.
    """

    prefix: str
    stacked: dict[str, str] = field(default_factory=dict)
    split: dict[str, dict[int, str]] = field(default_factory=dict)

    @property
    def pattern(self) -> str:
        return _NUMBER.sub("*", self.prefix)

    @property
    def layer(self) -> int | None:
        numbers = _NUMBER.findall(self.prefix)
        return int(numbers[0]) if numbers else None

    def members(self) -> Iterator[str]:
        yield from self.stacked.values()
        for experts in self.split.values():
            yield from experts.values()


@dataclass(frozen=True)
class DiskReading:
    """What one group turned out to be: None for `disk` means that it is not a layout known here."""

    disk: Disk | None
    names: tuple[str, ...]
    num_experts: int
    ambiguous: bool
    evidence: tuple[str, ...]


def expert_groups(checkpoint: Checkpoint) -> list[ExpertGroup]:
    """Groups the keys of routed experts by container, in file order; shared experts are not among them."""
    groups: dict[str, ExpertGroup] = {}
    for key in checkpoint.tensors:
        if "experts" not in key:
            continue
        match = _SPLIT.match(key)
        if match is None:
            match = _STACKED.match(key)
        if match is None or "shared" in match["box"]:
            continue
        prefix = f"{match['head']}{match['box']}"
        group = groups.setdefault(prefix, ExpertGroup(prefix))
        number = match.groupdict().get("expert")
        if number is not None:
            group.split.setdefault(match["leaf"], {})[int(number)] = key
        else:
            group.stacked[match["leaf"]] = key
    return [group for group in groups.values() if _weighty(group, checkpoint)]


def _weighty(group: ExpertGroup, checkpoint: Checkpoint) -> bool:
    """A group that holds weights; a lone router bias below `experts` is none."""
    shapes = (checkpoint.shape(key) for key in group.stacked.values())
    return bool(group.split) or any(shape is None or len(shape) >= 2 for shape in shapes)


def read_disk(group: ExpertGroup, checkpoint: Checkpoint) -> DiskReading:
    """Judges one group by its names and by the shapes of gate_up and down as a pair."""
    if group.split and not group.stacked:
        return _read_split(group)
    if group.stacked and not group.split:
        return _read_stacked(group, checkpoint)
    evidence = (f"{group.prefix} has both numbered and stacked experts",)
    return DiskReading(None, (), 0, False, evidence)


def _read_split(group: ExpertGroup) -> DiskReading:
    numbers = {number for experts in group.split.values() for number in experts}
    count = max(numbers) + 1
    for names in SPLIT_NAMES:
        if set(names) <= group.split.keys():
            evidence = (f"{group.prefix}.{min(numbers)}.{names[0]} and {len(numbers) - 1} more experts",)
            return DiskReading(Disk.per_expert, names, count, False, evidence)
    leaves = ", ".join(sorted(group.split))
    return DiskReading(None, tuple(group.split), count, False, (f"experts made of {leaves}",))


def _read_stacked(group: ExpertGroup, checkpoint: Checkpoint) -> DiskReading:
    for names in FUSED_NAMES:
        if set(names) <= group.stacked.keys():
            gate_up, down = (checkpoint.shape(group.stacked[name]) for name in names)
            return _read_pair(group, names, gate_up, down)
    leaves = ", ".join(sorted(group.stacked))
    return DiskReading(None, tuple(group.stacked), 0, False, (f"stacked experts made of {leaves}",))


def _read_pair(
    group: ExpertGroup, names: tuple[str, str], gate_up: tuple[int, ...] | None, down: tuple[int, ...] | None
) -> DiskReading:
    if gate_up is None or down is None:
        seen = f"{group.prefix}.{names[0]} is named, its shape is not known: the orientation cannot be seen"
        return DiskReading(Disk.fused, names, 0, True, (seen,))
    orientation = pair_orientation(gate_up, down)
    evidence = [f"{names[0]} {list(gate_up)}, {names[1]} {list(down)}"]
    disk = {Memory.canonical: Disk.fused, Memory.transposed: Disk.fused_transposed}.get(orientation)
    others = sorted(group.stacked.keys() - set(names))
    if others:
        evidence.append(f"beside them: {', '.join(others)}, for which the canonical form has no place")
        disk = Disk.fused_transposed_bias if disk is Disk.fused_transposed else None
    return DiskReading(disk, names, gate_up[0] if gate_up else 0, False, tuple(evidence))


def pair_orientation(gate_up: tuple[int, ...], down: tuple[int, ...]) -> Memory:
    """The orientation of a (gate_up, down) pair; one tensor alone can be ambiguous, the pair never is.

    Canonical is [E, 2I, H] with [E, H, I]; transposed is [E, H, 2I] with [E, I, H].
    """
    if len(gate_up) != 3 or len(down) != 3 or gate_up[0] != down[0]:
        return Memory.none
    if gate_up[1] == 2 * down[2] and gate_up[2] == down[1]:
        return Memory.canonical
    if gate_up[2] == 2 * down[1] and gate_up[1] == down[2]:
        return Memory.transposed
    return Memory.none
