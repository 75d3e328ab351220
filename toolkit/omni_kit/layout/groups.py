"""Groups of expert weights among the keys of a checkpoint."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from omni_kit.layout.checkpoint import Checkpoint
from omni_kit.layout.quantised import beside
from omni_kit.layout.taxonomy import FLAT, NAMELESS, RETRIEVAL, plain

_LEAVES = "|".join(sorted(NAMELESS | set(RETRIEVAL)))
_NAMELESS = re.compile(rf"^(?P<head>(?:.*\.)?)(?P<box>\w+)\.(?P<leaf>(?:{_LEAVES})(?:\.weight)?)$")
_NUMBER = re.compile(r"(?<=\.)[0-9]{1,9}(?=\.)")
_EXPERT = re.compile(r"(?P<word>expert_)?(?P<number>0|[1-9][0-9]{0,8})")
_RETRIEVAL = frozenset(RETRIEVAL)


@dataclass
class ExpertGroup:
    """The expert keys below one container in one layer.

    Attributes:
        prefix: the container ("model.layers.3.mlp.experts").
        stacked: leaf -> key of tensors that hold all experts.
        split: leaf -> expert number -> key.
        scales: leaf -> keys of quantisation scales and packed blocks that ride along.
        by_word: the experts are called `expert_0`, as in a ModuleDict.
    """

    prefix: str
    stacked: dict[str, str] = field(default_factory=dict)
    split: dict[str, dict[int, str]] = field(default_factory=dict)
    scales: dict[str, list[str]] = field(default_factory=dict)
    by_word: bool = False

    @property
    def pattern(self) -> str:
        """The prefix with a star for each number, the same for all layers."""
        return _NUMBER.sub("*", self.prefix)

    @property
    def layer(self) -> int | None:
        """The layer, which is the first number of the prefix; None when the prefix has none."""
        numbers = _NUMBER.findall(self.prefix)
        return int(numbers[0]) if numbers else None

    def members(self) -> Iterator[str]:
        """Yield every key of the group: stacked weights, split ones, then scales."""
        yield from self.stacked.values()
        for experts in self.split.values():
            yield from experts.values()
        for keys in self.scales.values():
            yield from keys


def expert_groups(checkpoint: Checkpoint) -> list[ExpertGroup]:
    """Groups the keys of routed experts by container, in file order; shared experts are not among them."""
    groups: dict[str, ExpertGroup] = {}
    for key in checkpoint.tensors:
        found = _place(key, checkpoint)
        if found is not None:
            prefix, number, leaf = found
            group = groups.get(prefix)
            if group is None:
                group = groups[prefix] = ExpertGroup(prefix)
            _add(group, key, number, leaf)
    return [group for group in groups.values() if _weighty(group, checkpoint)]


def _place(key: str, checkpoint: Checkpoint) -> tuple[str, str, str] | None:
    """(container, expert number or "", leaf) of an expert key; None for any other."""
    head, found, tail = key.partition("experts.")
    if not found:
        return _nameless(key, checkpoint)
    word = head.rpartition(".")[2]
    if word.startswith("shared"):
        return None
    number, _, leaf = tail.partition(".")
    if _EXPERT.fullmatch(number):
        return f"{head}experts", number, leaf
    return f"{head}experts", "", tail


def _nameless(key: str, checkpoint: Checkpoint) -> tuple[str, str, str] | None:
    """Experts in a box that is not called so: known leaves of three dimensions, or of an embedding."""
    leaf = plain(key).rpartition(".")[2]
    if leaf not in NAMELESS and leaf not in _RETRIEVAL:
        return None
    match = _NAMELESS.match(key)
    if match is None or match["box"].startswith("shared"):
        return None
    shape = checkpoint.shape(key)
    stacked = leaf.endswith("_linear") if shape is None else len(shape) == 3
    if not stacked and leaf not in _RETRIEVAL:
        return None
    return f"{match['head']}{match['box']}", "", match["leaf"]


def _add(group: ExpertGroup, key: str, number: str, leaf: str) -> None:
    scale = beside(leaf)
    if scale:
        group.scales.setdefault(leaf, []).append(key)
    if match := _EXPERT.fullmatch(number):
        group.by_word |= match["word"] is not None
        if not scale:
            group.split.setdefault(leaf, {})[int(match["number"])] = key
    elif not scale or leaf.endswith("_blocks"):
        group.stacked[leaf] = key


def _weighty(group: ExpertGroup, checkpoint: Checkpoint) -> bool:
    """Return a group that holds weights; a lone router bias or norm below `experts` is none."""
    leaves = {plain(leaf) for leaf in group.stacked}
    if group.split or set(FLAT) <= leaves:
        return True
    shapes = (checkpoint.shape(key) for key in group.stacked.values())
    return any(shape is None or len(shape) >= 3 for shape in shapes) or bool(leaves & _RETRIEVAL)
