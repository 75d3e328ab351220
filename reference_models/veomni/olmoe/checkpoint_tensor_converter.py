"""Turns hub checkpoints of Olmoe into VeOmni's stacked experts while they load.

On disk: for each expert j gate_proj.weight [I, H], up_proj.weight [I, H], down_proj.weight [H, I].
In memory: gate_up_proj [E, 2I, H], gate rows first, and down_proj [E, H, I].
Checkpoints already in this layout pass through unchanged.
"""

import re

import torch
from veomni.models.checkpoint_tensor_loading import ConvertedCheckpointTensor

_EXPERT = re.compile(
    r"^((?:.+\.)?layers\.\d+\.mlp\.experts)\.(\d+)\.(gate_proj\.weight|up_proj\.weight|down_proj\.weight)$"
)
# parameter -> its parts on disk, in order
_PARTS = {
    "gate_up_proj": (
        "gate_proj.weight",
        "up_proj.weight",
    ),
    "down_proj": ("down_proj.weight",),
}
_TARGETS = {part: target for target, parts in _PARTS.items() for part in parts}


class OlmoeCheckpointTensorConverter:
    """Collect the experts of one container and return them stacked.

    Memory: the experts of the containers that are incomplete so far; one layer's, in a checkpoint that keeps layers
    together.

    Args:
        num_experts: experts in a layer.
    """

    def __init__(self, num_experts: int):
        self.num_experts = num_experts
        self._parts: dict[tuple[str, str], dict[tuple[str, int], torch.Tensor]] = {}
        self._emitted: dict[str, set[str]] = {}

    def can_handle(self, name: str) -> bool:
        return _EXPERT.match(name) is not None

    def convert(self, name: str, tensor: torch.Tensor) -> ConvertedCheckpointTensor | None:
        match = _EXPERT.match(name)
        if match is None:
            return ConvertedCheckpointTensor(name, tensor)
        container, expert, part = match.group(1), int(match.group(2)), match.group(3)
        if expert >= self.num_experts:
            raise ValueError(f"{name}: the config has only {self.num_experts} experts")
        target = _TARGETS[part]
        collected = self._parts.setdefault((container, target), {})
        collected[part, expert] = tensor
        if len(collected) < self.num_experts * len(_PARTS[target]):
            return None
        del self._parts[container, target]
        self._emitted.setdefault(container, set()).add(target)
        stacked = [
            torch.stack([collected[part, index] for index in range(self.num_experts)]) for part in _PARTS[target]
        ]
        return ConvertedCheckpointTensor(f"{container}.{target}", torch.cat(stacked, dim=1))

    def finalize(self) -> list[ConvertedCheckpointTensor]:
        """Raise RuntimeError, naming the first missing tensor, if a part never came."""
        containers = {container for container, _ in self._parts} | self._emitted.keys()
        for container in sorted(containers):
            for target in _PARTS:
                if target in self._emitted.get(container, ()):
                    continue
                collected = self._parts.get((container, target), {})
                missing = [wanted for wanted in _wanted(self.num_experts, target) if wanted not in collected]
                part, expert = missing[0]
                raise RuntimeError(f"checkpoint is incomplete: {container}.{expert}.{part} is missing")
        return []


def _wanted(num_experts: int, target: str) -> list[tuple[str, int]]:
    return [(part, expert) for part in _PARTS[target] for expert in range(num_experts)]


def create_olmoe_checkpoint_tensor_converter(model) -> OlmoeCheckpointTensorConverter:
    """Return the converter for a model; its config may contain a text config or be one."""
    config = model.config
    for part in ("thinker_config", "text_config"):
        config = getattr(config, part, config)
    return OlmoeCheckpointTensorConverter(num_experts=config.num_experts)


def convert_olmoe_fqn_to_index_mapping(fqn_to_index_mapping: dict[str, int]) -> dict[str, int]:
    """Shard numbers for names in memory, from those for names on disk: the first shard that holds a part."""
    converted: dict[str, int] = {}
    for name, shard in fqn_to_index_mapping.items():
        for memory in _in_memory(name):
            converted[memory] = min(shard, converted.get(memory, shard))
    return converted


def _in_memory(name: str) -> list[str]:
    """The names that a key fills; for experts of one list, every stack is possible."""
    match = _EXPERT.match(name)
    if match is not None:
        return [f"{match.group(1)}.{_TARGETS[match.group(3)]}"]
    return [name]
