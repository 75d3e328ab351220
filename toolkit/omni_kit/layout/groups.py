"""Which keys of a checkpoint are expert weights, and which of them belong together."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from omni_kit.layout.checkpoint import Checkpoint
from omni_kit.layout.taxonomy import FLAT, NAMELESS, RETRIEVAL, plain

_SPLIT = re.compile(r"^(?P<head>.*?)(?P<box>\w*experts)\.(?P<word>expert_)?(?P<expert>\d+)\.(?P<leaf>.+)$")
_STACKED = re.compile(r"^(?P<head>.*?)(?P<box>\w*experts)\.(?P<leaf>(?!\d)[\w.]+)$")
_LEAVES = "|".join(sorted(NAMELESS | set(RETRIEVAL)))
_NAMELESS = re.compile(rf"^(?P<head>(?:.*\.)?)(?P<box>\w+)\.(?P<leaf>(?:{_LEAVES})(?:\.weight)?)$")
_NUMBER = re.compile(r"(?<=\.)\d+(?=\.)")
_SCALES = ("_scale_inv", "_scale", "_scales", "_blocks")
_RETRIEVAL = frozenset(RETRIEVAL)


@dataclass
class ExpertGroup:
    """The expert keys below one container in one layer.

    Attributes:
        prefix: the container ("model.layers.3.mlp.experts").
        stacked: leaf -> key of tensors that hold all experts.
        split: leaf -> expert number -> key.
        scales: keys of quantisation scales and packed blocks that ride along.
        by_word: the experts are called `expert_0`, as in a ModuleDict.
    """

    prefix: str
    stacked: dict[str, str] = field(default_factory=dict)
    split: dict[str, dict[int, str]] = field(default_factory=dict)
    scales: list[str] = field(default_factory=list)
    by_word: bool = False

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
        yield from self.scales


def expert_groups(checkpoint: Checkpoint) -> list[ExpertGroup]:
    """Groups the keys of routed experts by container, in file order; shared experts are not among them."""
    groups: dict[str, ExpertGroup] = {}
    for key in checkpoint.tensors:
        match = _match(key, checkpoint)
        if match is None or "shared" in match["box"] or "shared" in match["head"].rpartition(".")[2]:
            continue
        prefix = f"{match['head']}{match['box']}"
        group = groups.setdefault(prefix, ExpertGroup(prefix))
        _add(group, key, match)
    return [group for group in groups.values() if _weighty(group, checkpoint)]


def _match(key: str, checkpoint: Checkpoint) -> re.Match[str] | None:
    if "experts" in key:
        return _SPLIT.match(key) or _STACKED.match(key)
    leaf = plain(key).rpartition(".")[2]
    if leaf in NAMELESS:
        shape = checkpoint.shape(key)
        if (shape is None and leaf.endswith("_linear")) or (shape is not None and len(shape) == 3):
            return _NAMELESS.match(key)
    return _NAMELESS.match(key) if leaf in _RETRIEVAL else None


def _add(group: ExpertGroup, key: str, match: re.Match[str]) -> None:
    parts = match.groupdict()
    if parts["leaf"].endswith(_SCALES):
        group.scales.append(key)
    if parts.get("expert") is not None:
        group.by_word |= bool(parts["word"])
        if not parts["leaf"].endswith(_SCALES):
            group.split.setdefault(parts["leaf"], {})[int(parts["expert"])] = key
    elif not parts["leaf"].endswith(_SCALES) or parts["leaf"].endswith("_blocks"):
        group.stacked[parts["leaf"]] = key


def _weighty(group: ExpertGroup, checkpoint: Checkpoint) -> bool:
    """A group that holds weights; a lone router bias or norm below `experts` is none."""
    leaves = {plain(leaf) for leaf in group.stacked}
    if group.split or set(FLAT) <= leaves:
        return True
    shapes = (checkpoint.shape(key) for key in group.stacked.values())
    return any(shape is None or len(shape) >= 3 for shape in shapes) or bool(leaves & _RETRIEVAL)
