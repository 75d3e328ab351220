"""A checkpoint's tensors in the requested form: canonical, as in memory, or as on the hub."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any

from omni_kit.convert.experts import Experts, decodable, decode, encode
from omni_kit.errors import BadInput
from omni_kit.layout.checkpoint import Checkpoint
from omni_kit.layout.disk import DiskReading, read_disk
from omni_kit.layout.exact import block_rows, obstacle, open_without_model, packed, packed_weight
from omni_kit.layout.groups import ExpertGroup, expert_groups
from omni_kit.layout.memory import interleaves, memory_layout
from omni_kit.layout.taxonomy import CANONICAL_PAIR, PAIRS, Disk, Memory, plain
from omni_kit.upstream.transformers.models import UpstreamModel
from omni_kit.upstream.transformers.recipes.book import Recipe
from omni_kit.upstream.transformers.recipes.expression import whole
from omni_kit.upstream.transformers.recipes.rope import with_heads
from omni_kit.upstream.transformers.recipes.running import Shapes, Tensors, add, memory_name, to_hub, to_memory

_EXPERT_NUMBER = re.compile(r"\.(?:expert_)?[0-9]+$")


class Form(StrEnum):
    """A form that a checkpoint can be converted to."""

    memory = "memory"
    canonical = "canonical"
    hub = "hub"


@dataclass(frozen=True)
class _Box:
    """One container of experts: its name in memory, and what it holds."""

    name: str
    experts: Experts


class Former:
    """Brings the tensors of one checkpoint into a form.

    Args:
        model: the upstream model; without it only the canonical form of split experts can be made.
    """

    def __init__(self, checkpoint: Checkpoint, model: UpstreamModel | None) -> None:
        self.checkpoint = checkpoint
        self.model = model
        self.groups = expert_groups(checkpoint)
        self.recipe: Recipe | None = with_heads(model) if model else None

    def tensors(self, form: Form) -> Tensors:
        """Return every tensor of the result, by name, in the order of the checkpoint.

        Raises:
            BadInput: the checkpoint's layout has no such form, or cannot be brought there exactly.
        """
        if self.model is None and form is not Form.canonical:
            raise BadInput(f"no config.json names the model, so its {form} form is unknown")
        if form is not Form.canonical and (why := packed_weight(self.checkpoint)):
            raise BadInput(f"{why}: only its quantizer defines its {form} form", "dequantise the checkpoint first")
        boxes = [box for group in self.groups if (box := self._box(group, form)) is not None]
        taken = {key for box in boxes for key in box.experts.keys}
        others = {
            key: whole(key, self.checkpoint.shape(key) or ()) for key in self.checkpoint.tensors if key not in taken
        }
        found: Tensors = {}
        for name, x in to_memory(self.recipe, others, self._shapes).items():
            add(found, self._fitted(name), x)
        for box in boxes:
            for leaf, x in self._leaves(box, form).items():
                add(found, f"{box.name}.{leaf}", x)
        return to_hub(self.recipe, found, self._shapes) if form is Form.hub else found

    def _box(self, group: ExpertGroup, form: Form) -> _Box | None:
        """Return the group's experts, or None if they go the way of all other tensors."""
        if {"self_attn", "self_attention"} & set(group.prefix.split(".")):
            return None
        reading = self._reading(group)
        if why := packed(group, self.checkpoint):
            raise BadInput(why, "dequantise the checkpoint first")
        if not decodable(reading):
            self._refuse_if_lost(group, reading, form)
            return None
        if self.model is None and (question := open_without_model(reading, self.checkpoint)):
            raise BadInput(f"{group.prefix}: {question}", "put the model's config.json next to the weights")
        name = self._container(group, reading.names[0])
        if form is not Form.canonical and self._held_singly(name):
            return None
        self._refuse_loss(group, reading, form)
        return _Box(name, decode(group, reading, self.checkpoint))

    def _reading(self, group: ExpertGroup) -> DiskReading:
        return read_disk(group, self.checkpoint, self._interleaved(group))

    def _interleaved(self, group: ExpertGroup) -> bool:
        """Return whether gate and up alternate in this group: its keys still have to pass the recipe's Interleave."""
        if self.model is None or not interleaves(self.model):
            return False
        operations = {op.name for t in (self.recipe.transforms if self.recipe else ()) for op in t.operations}
        if "Interleave" not in operations or self.recipe is None:
            return True
        return any(self.recipe.route(key).transform is not None for key in group.stacked.values())

    def _refuse_if_lost(self, group: ExpertGroup, reading: DiskReading, form: Form) -> None:
        names = {op.name for t in (self.recipe.transforms if self.recipe else ()) for op in t.operations}
        by_recipe = "ErnieFuseAndSplitTextVisionExperts" in names and reading.disk is Disk.per_expert_two_width
        if form is Form.canonical and not by_recipe and not self.checkpoint.canonical:
            shown = reading.disk or f"of no known layout ({'; '.join(reading.evidence)})"
            raise BadInput(f"{group.prefix} is {shown}, which has no canonical form", "see omni-kit check-layout")

    def _refuse_loss(self, group: ExpertGroup, reading: DiskReading, form: Form) -> None:
        """Experts that cannot be moved exactly; those that are canonical already need not be, unless for the hub."""
        stay = reading.disk is Disk.fused and form is not Form.hub
        block = block_rows(self.model) if self.model else None
        if not stay and (why := obstacle(group, reading, self.checkpoint, block)):
            raise BadInput(why, "dequantise the checkpoint first" if reading.quantized else "")

    def _container(self, group: ExpertGroup, leaf: str) -> str:
        """Return the container's name in memory: where the recipe leads its weights."""
        key = group.stacked[leaf] if leaf in group.stacked else next(iter(group.split[leaf].values()))
        name = memory_name(self.recipe, key, self._shapes)
        box = _EXPERT_NUMBER.sub("", plain(name).rpartition(".")[0])
        heads = (box, *(f"{head}.{box}" for head in self._heads), box.partition(".")[2])
        return next((candidate for candidate in heads if candidate in self._modules), box)

    def _leaves(self, box: _Box, form: Form) -> Tensors:
        if form is Form.canonical:
            return dict(box.experts.tensors)
        memory, names = self._memory(box.name)
        return encode(box.experts, memory, names)

    def _memory(self, container: str) -> tuple[Memory, tuple[str, str]]:
        """Return the module's form of a container, and its two leaves; one that is not built is like the others."""
        assert self.model is not None
        similar = [container, *(name for name in self._modules if name.endswith("experts"))]
        for name in similar:
            memory = memory_layout(self.model, (f"{name}.{CANONICAL_PAIR[0]}",))
            leaves = self._modules.get(name, {})
            pair = next((pair for pair in PAIRS if set(pair) <= leaves.keys()), None)
            if memory is not Memory.none and pair is not None:
                first, second = (leaves[leaf].name.removeprefix(f"{name}.") for leaf in pair)
                return memory, (first, second)
        return Memory.canonical, CANONICAL_PAIR

    def _held_singly(self, container: str) -> bool:
        """Return whether the model holds each expert as a module of its own."""
        return f"{container}.0" in self._modules or f"{container}.expert_0" in self._modules

    @cached_property
    def _parameters(self) -> Mapping[str, Any]:
        return self.model.skeleton.names() if self.model else {}

    @cached_property
    def _shapes(self) -> Shapes:
        return {name: parameter.shape for name, parameter in self._parameters.items()}

    @cached_property
    def _modules(self) -> Mapping[str, Mapping[str, Any]]:
        return self.model.skeleton.by_module if self.model else {}

    @cached_property
    def _heads(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name.partition(".")[0] for name in self._parameters))

    def _fitted(self, name: str) -> str:
        """Return a name with the base model's prefix added or removed where the model has the parameter under
        that one.
        """
        candidates = (name, *(f"{head}.{name}" for head in self._heads), name.partition(".")[2])
        return next((candidate for candidate in candidates if candidate in self._parameters), name)
