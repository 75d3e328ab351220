"""Features that VeOmni's own integrations of the same structure have: VEO518 and VEO519."""

import ast
from collections.abc import Iterator

from omni_checkers.engine.rule import Finding, Findings, NotApplicable, Rule, Severity
from omni_checkers.veomni.examples import GPU_CONFIG, patch_config
from omni_checkers.veomni.facts.generated import Generated
from omni_kit.pysource.nodes import calls, last_name, within
from omni_kit.pysource.source import dotted
from omni_kit.targets.veomni.text.precision import products
from omni_kit.targets.veomni.text.replay import REPLAY, REPLAYING, choices, known_features

_EXPERTS = "self.experts"
_ROUTED = """\


{imports}@config.override_method("OlmoeTopKRouter.forward", description="choice of experts")
def olmoe_top_k_router_forward(self, hidden_states):
    hidden_states = hidden_states.reshape(-1, self.hidden_dim)
    router_logits = F.linear(hidden_states, self.weight)
    router_probs = torch.nn.functional.softmax(router_logits, dtype=torch.float, dim=-1)
    router_top_value, router_indices = torch.topk(router_probs, self.top_k, dim=-1)
{replay}    if self.norm_topk_prob:
        router_top_value /= router_top_value.sum(dim=-1, keepdim=True)
    router_top_value = router_top_value.to(router_logits.dtype)
    return router_logits, router_top_value, router_indices
"""
_IMPORTS = (
    'config.add_import("veomni.utils.moe_router_replay", names=["get_active_replay", "maybe_replay_indices"])\n\n\n'
)
_REPLAY = """\
    if get_active_replay() is not None:
        router_indices = maybe_replay_indices(self, router_probs, router_indices)
        router_top_value = router_probs.gather(-1, router_indices)
"""


class FeaturesOfSiblings(Rule):
    """Call VeOmni's router replay where the model selects experts, as VeOmni's own models do.

    Why: VeOmni's recorder of routing decisions sees nothing of this model, without an error. Reinforcement learning
    then trains with other experts than generation used.

    Fine when: nobody trains the model with replayed routing; state that in its README.
    """

    id = "VEO518"
    name = "features-of-sibling-models"
    severity = Severity.info
    target = "veomni"
    BAD = ({GPU_CONFIG: patch_config(_ROUTED.format(imports="", replay=""))},)
    GOOD = ({GPU_CONFIG: patch_config(_ROUTED.format(imports=_IMPORTS, replay=_REPLAY))},)

    def check(self, generated: list[Generated]) -> Findings:
        if REPLAY not in known_features():
            raise NotApplicable("the installed VeOmni has no router replay")
        for item in generated:
            blocks = _blocks(item.file.tree)
            called = {last_name(call.func) for block in blocks for call in calls(block)}
            lost = [name for name in REPLAYING if name not in called]
            if lost and (chosen := next(_chosen(blocks), None)):
                message = f"{chosen[0].name}.{chosen[1].name} selects experts but does not call {', '.join(lost)}"
                yield Finding(f"{message}, as VeOmni's own models do", item.file.path, chosen[1].lineno)


_PRODUCT = "router_logits = F.linear(hidden_states.float(), self.weight.float())"
_GUARD = "with torch.autocast(device_type=hidden_states.device.type, enabled=False):"
_FLOAT32 = _ROUTED.format(imports="", replay="").replace(
    "router_logits = F.linear(hidden_states, self.weight)", _PRODUCT
)


class RouterPrecision(Rule):
    """Disable autocast around a router's products in float32, as VeOmni's own models do.

    Why: Autocast lowers the inputs of the product again, whatever the code casts them to. Training under autocast then
    selects other experts than generation, without an error.

    Fine when: nobody trains the model under autocast; state that in its README.
    """

    id = "VEO519"
    name = "autocast-of-float32-routers"
    severity = Severity.info
    target = "veomni"
    BAD = ({GPU_CONFIG: patch_config(_FLOAT32)},)
    GOOD = ({GPU_CONFIG: patch_config(_FLOAT32.replace(f"    {_PRODUCT}", f"    {_GUARD}\n        {_PRODUCT}"))},)

    def check(self, generated: list[Generated]) -> Findings:
        for item in generated:
            for block in _routers(item.file.tree):
                for method in (one for one in block.body if isinstance(one, ast.FunctionDef)):
                    for product in products(method):
                        message = f"{block.name}.{method.name} multiplies in float32, which autocast lowers"
                        yield Finding(message, item.file.path, product.statement.lineno)


def _chosen(blocks: list[ast.ClassDef]) -> Iterator[tuple[ast.ClassDef, ast.FunctionDef]]:
    """Yield the methods that choose experts by a statement that a call can follow."""
    for block in blocks:
        yield from ((block, item) for item in block.body if isinstance(item, ast.FunctionDef) and choices(item))


def _routers(tree: ast.Module | None) -> list[ast.ClassDef]:
    """Return the classes that call experts, those that choose them, and those that are built by one of them."""
    blocks = _blocks(tree)
    built = {last_name(call) for block in blocks for call in calls(block)}
    nodes = within(tree, ast.ClassDef) if tree is not None else ()
    return [*blocks, *(node for node in nodes if node.name in built and node not in blocks)]


def _blocks(tree: ast.Module | None) -> list[ast.ClassDef]:
    """Return the classes that call experts, and those that choose them."""
    nodes = list(within(tree, ast.ClassDef)) if tree is not None else []
    calling = [node for node in nodes if any(dotted(call.func) == _EXPERTS for call in calls(node, "experts"))]
    choosing = [node for node in nodes if node not in calling and any(True for _ in calls(node, "topk"))]
    return [*calling, *choosing] if calling else []
