"""The experts of one container: all that was found out about them, layer by layer and then over all layers."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from omni_kit.layout.accounting import Accounting
from omni_kit.layout.checkpoint import Checkpoint
from omni_kit.layout.disk import DiskReading
from omni_kit.layout.exact import block_rows, obstacle, open_without_model, packed
from omni_kit.layout.groups import ExpertGroup
from omni_kit.layout.memory import memory_layout
from omni_kit.layout.taxonomy import CONVERTERS, Converter, Disk, Memory
from omni_kit.upstream.model import Model
from omni_kit.upstream.transformers.traits import expert_parameters

# A word of the prefix -> the role of the experts below it.
_ROLES = {
    "visual": "vision", "vision_tower": "vision", "vision_model": "vision", "talker": "talker", "thinker": "text",
    "language_model": "text", "text_model": "text",
}  # fmt: skip


@dataclass(frozen=True)
class JudgedGroup:
    """The experts of one container in one layer, and all that was found out about them.

    Attributes:
        fed: the parameters that they feed.
        open_question: what cannot be known of their layout without a config; empty if all is known.
        obstacle: why they cannot be moved to the canonical form; empty if they can.
    """

    group: ExpertGroup
    reading: DiskReading
    role: str
    fed: tuple[str, ...]
    memory: Memory
    open_question: str
    obstacle: str


@dataclass(frozen=True)
class Subtree:
    """The experts of one container across layers that share a layout."""

    prefix: str
    layers: tuple[int, ...]
    role: str
    disk: Disk | None
    memory: Memory
    converter: Converter
    num_experts: int
    names: tuple[str, ...]
    dtype: str | None
    quantized: str | None
    ambiguous: bool
    evidence: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """Return one entry of `subtrees`, with the names of the weights by their part."""
        keys = {2: ("gate_up", "down"), 3: ("gate", "up", "down")}.get(len(self.names), ())
        if self.disk is Disk.per_expert_no_gate:
            keys = ("up", "down")
        named = dict(zip(keys, self.names, strict=True)) if self.disk and keys else {"parts": list(self.names)}
        return asdict(self) | {"names": named, "disk": self.disk or "none"}


def judge_group(
    group: ExpertGroup,
    reading: DiskReading,
    checkpoint: Checkpoint,
    model: Model | None,
    accounting: Accounting | None,
) -> JudgedGroup:
    """Return all that the headers, and the model where it is known, tell of one group."""
    feeds = accounting.feeds if accounting is not None else {}
    fed = tuple(dict.fromkeys(name for key in group.members() for name in feeds.get(key, ())))
    predicts = accounting is not None and next(group.members()) in accounting.predicting
    open_question = "" if model is not None else open_without_model(reading, checkpoint)
    why = obstacle(group, reading, checkpoint, block_rows(model) if model else None)
    return JudgedGroup(
        group=group,
        reading=reading,
        role=_role(group, predicts),
        fed=fed,
        memory=_memory(model, fed, predicts),
        open_question=open_question,
        # what is canonical already need not be moved
        obstacle=packed(group, checkpoint) if reading.disk is Disk.fused else why,
    )


def merge(judged: Sequence[JudgedGroup], checkpoint: Checkpoint) -> Iterator[Subtree]:
    """Groups of one container that are alike in everything, over all layers."""
    merged: dict[tuple[Any, ...], list[JudgedGroup]] = {}
    for one in judged:
        reading = one.reading
        key = (
            one.group.pattern, one.role, reading.disk, reading.names, reading.num_experts, reading.ambiguous,
            reading.quantized, one.memory, not one.obstacle,
        )  # fmt: skip
        merged.setdefault(key, []).append(one)
    for members in merged.values():
        first = members[0]
        reading = first.reading
        yield Subtree(
            prefix=first.group.pattern,
            layers=tuple(sorted(one.group.layer for one in members if one.group.layer is not None)),
            role=first.role,
            disk=reading.disk,
            memory=first.memory,
            converter=Converter.none if first.role == "attention" else _converter(first),
            num_experts=reading.num_experts,
            names=reading.names,
            dtype=checkpoint.dtype(next(first.group.members())) or None,
            quantized=reading.quantized,
            ambiguous=reading.ambiguous or bool(first.open_question),
            evidence=(*reading.evidence, *filter(None, (first.open_question, first.obstacle))),
        )


def _memory(model: Model | None, fed: tuple[str, ...], predicts: bool) -> Memory:
    """Return the module's form of what a group feeds; a layer that is not built is treated like the others."""
    if model is None:
        return Memory.none
    if not predicts:
        return memory_layout(model, fed)
    alike = {memory_layout(model, (parameter.name,)) for parameter in expert_parameters(model.skeleton)}
    return alike.pop() if len(alike) == 1 else Memory.none


def _converter(one: JudgedGroup) -> Converter:
    reading = one.reading
    if reading.disk is None or reading.ambiguous or one.open_question or one.obstacle:
        return Converter.unsupported
    return CONVERTERS.get(reading.disk, Converter.unsupported)


def _role(group: ExpertGroup, predicts: bool) -> str:
    words = group.prefix.split(".")
    if "mtp" in words or predicts:
        return "mtp"
    for word, role in _ROLES.items():
        if word in words:
            return role
    return "attention" if "self_attn" in words or "self_attention" in words else "main"
