"""Features that VeOmni's own integrations of the same structure have: VEO518."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from omni_checkers.engine.rule import Finding, Findings, NotApplicable, Rule, Severity
from omni_checkers.veomni.examples import GPU_CONFIG, patch_config
from omni_checkers.veomni.facts.constants import installed_package, veomni_package
from omni_checkers.veomni.facts.generated import Generated
from omni_kit.pysource.nodes import calls, last_name, within
from omni_kit.pysource.source import dotted, parse_file
from omni_kit.targets.veomni.model_dir import ModelDir

_OWN = "models/transformers/*/generated/patched_modeling_*_gpu.py"
_FRAMEWORK = "veomni"
_EXPERTS = "self.experts"
# Of so many of VeOmni's own models, a feature is what the framework expects, and not one model's own.
_SEVERAL = 2
_ROUTED = """\


{imports}@config.override_method("OlmoeSparseMoeBlock.forward", description="router replay")
def olmoe_sparse_moe_block_forward(self, hidden_states):
    batch_size, sequence_length, hidden_dim = hidden_states.shape
    hidden_states = hidden_states.view(-1, hidden_dim)
    logits, top_k_weights, top_k_index = self.gate(hidden_states)
{replay}    hidden_states = self.experts(hidden_states, top_k_index, top_k_weights)
    return hidden_states.reshape(batch_size, sequence_length, hidden_dim)
"""
_IMPORTS = (
    'config.add_import("veomni.utils.moe_router_replay", names=["get_active_replay", "maybe_replay_indices"])\n\n\n'
)
_REPLAY = """\
    if get_active_replay() is not None:
        top_k_index = maybe_replay_indices(self.gate, logits, top_k_index)
        top_k_weights = logits.softmax(-1).gather(-1, top_k_index).to(hidden_states.dtype)
"""


class FeaturesOfSiblings(Rule):
    """A block of experts calls what the blocks of VeOmni's own models call: router replay, for example.

    Why: the framework's recorder of routing decisions sees nothing of this model, without an error. Reinforcement
    learning then trains with other experts than those that generated.

    Fine when: the model is never trained with what is missing; say so in its README.
    """

    id = "VEO518"
    name = "features-of-sibling-models"
    severity = Severity.info
    target = "veomni"
    BAD = ({GPU_CONFIG: patch_config(_ROUTED.format(imports="", replay=""))},)
    GOOD = ({GPU_CONFIG: patch_config(_ROUTED.format(imports=_IMPORTS, replay=_REPLAY))},)

    def check(self, generated: list[Generated], model_dir: ModelDir) -> Findings:
        places = [place for place in (veomni_package(model_dir), installed_package()) if place is not None]
        wanted = next((found for place in places if (found := _common(place))), {})
        if not wanted:  # in a checkout of one model, the installed VeOmni says it
            raise NotApplicable("VeOmni's own models have nothing in common")
        for item in generated:
            if not (blocks := _blocks(item.file.tree)):
                continue
            called = {name for block in blocks for name in _called(item.file.tree, block)}
            lost = {name: models for name, models in wanted.items() if name not in called}
            if lost:
                names, models = sorted(lost), sorted(set.union(*map(set, lost.values())))
                message = f"{blocks[0].name} does not call {', '.join(names)}, as the blocks of {', '.join(models)} do"
                yield Finding(message, item.file.path, blocks[0].lineno)


@cache
def _common(package: Path) -> dict[str, tuple[str, ...]]:
    """The framework's functions that several of its own models' blocks of experts call, with these models."""
    found: dict[str, list[str]] = {}
    for file in sorted(package.glob(_OWN)):
        try:
            tree = parse_file(file)[1]
        except (OSError, SyntaxError, UnicodeDecodeError):
            continue
        for name in {name for block in _blocks(tree) for name in _called(tree, block)}:
            found.setdefault(name, []).append(file.parents[1].name)
    return {name: tuple(models) for name, models in found.items() if len(models) >= _SEVERAL}


def _blocks(tree: ast.Module | None) -> list[ast.ClassDef]:
    """The classes that call experts, and then those that choose them."""
    nodes = list(within(tree, ast.ClassDef)) if tree is not None else []
    calling = [node for node in nodes if any(dotted(call.func) == _EXPERTS for call in calls(node, "experts"))]
    choosing = [node for node in nodes if node not in calling and any(True for _ in calls(node, "topk"))]
    return [*calling, *choosing] if calling else []


def _called(tree: ast.Module | None, block: ast.ClassDef) -> Iterator[str]:
    """The framework's functions that a class calls; no kernels, which are called by the names of their slots."""
    imported = {
        alias.asname or alias.name
        for node in (within(tree, ast.ImportFrom) if tree is not None else ())
        if (node.module or "").startswith(f"{_FRAMEWORK}.")
        for alias in node.names
    }
    for call in calls(block):
        root = (dotted(call.func) or "").partition(".")[0]
        if root in imported:
            yield last_name(call.func)
