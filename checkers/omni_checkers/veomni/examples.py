"""Files that examples of several rules share: a small integration of OLMoE, as `new-model` writes it, shortened."""

GPU_CONFIG, NPU_CONFIG = "olmoe_gpu_patch_gen_config.py", "olmoe_npu_patch_gen_config.py"
GENERATED = "generated/patched_modeling_olmoe_gpu.py"

_CLASSES = "        from .generated.patched_modeling_olmoe_{} import OlmoeForCausalLM, OlmoeModel\n"
REGISTER = """\
from veomni.models.loader import MODELING_REGISTRY


@MODELING_REGISTRY.register("olmoe")
def register_olmoe_modeling(architecture):
    from .checkpoint_tensor_converter import (
        convert_olmoe_fqn_to_index_mapping,
        create_olmoe_checkpoint_tensor_converter,
    )
    from .generated.patched_modeling_olmoe_gpu import OlmoeForCausalLM, OlmoeModel

    for model_class in (OlmoeForCausalLM, OlmoeModel):
        model_class._create_checkpoint_tensor_converter = staticmethod(create_olmoe_checkpoint_tensor_converter)
        model_class._convert_fqn_to_index_mapping = staticmethod(convert_olmoe_fqn_to_index_mapping)
    return {"OlmoeForCausalLM": OlmoeForCausalLM, "OlmoeModel": OlmoeModel}[architecture or "OlmoeForCausalLM"]
"""
"""`__init__.py`: every class has its converter, each architecture is returned as it is named, and so is none."""
REGISTER_BOTH = REGISTER.replace(
    "import MODELING_REGISTRY\n", "import MODELING_REGISTRY\nfrom veomni.utils.device import IS_NPU_AVAILABLE\n"
).replace(
    _CLASSES.format("gpu").removeprefix("    "),
    f"\n    if IS_NPU_AVAILABLE:\n{_CLASSES.format('npu')}    else:\n{_CLASSES.format('gpu')}",
)
"""`__init__.py` of a model that has a generated file for NPUs, too."""

CONVERTER = """\
import re

import torch
from veomni.models.checkpoint_tensor_loading import ConvertedCheckpointTensor

_EXPERT = re.compile(r"^(.+\\.mlp\\.experts)\\.(\\d+)\\.(gate|up|down)_proj\\.weight$")


class Converter:
    def __init__(self, num_experts):
        self.num_experts = num_experts
        self.parts = {}

    def can_handle(self, name):
        return _EXPERT.match(name) is not None

    def convert(self, name, tensor):
        container, index, part = _EXPERT.match(name).groups()
        self.parts.setdefault((container, part), {})[int(index)] = tensor
        wanted = ("down",) if part == "down" else ("gate", "up")
        found = [self.parts.get((container, name), {}) for name in wanted]
        if any(len(experts) < self.num_experts for experts in found):
            return None
        for name in wanted:
            del self.parts[container, name]
        stacked = [torch.stack([experts[i] for i in range(self.num_experts)]) for experts in found]
        return ConvertedCheckpointTensor(_stacked(container, part), torch.cat(stacked, dim=1))

    def finalize(self):
        if self.parts:
            raise RuntimeError(f"incomplete: {sorted(self.parts)}")
        return []


def _stacked(container, part):
    return f"{container}.down_proj" if part == "down" else f"{container}.gate_up_proj"


def create_olmoe_checkpoint_tensor_converter(model):
    return Converter(model.config.num_experts)


def convert_olmoe_fqn_to_index_mapping(fqn_to_index_mapping):
    converted = {}
    for name, shard in fqn_to_index_mapping.items():
        match = _EXPERT.match(name)
        name = _stacked(match.group(1), match.group(3)) if match else name
        converted[name] = min(shard, converted.get(name, shard))
    return converted
"""
"""`checkpoint_tensor_converter.py`: one list of experts on disk, stacked in memory."""

_CONFIG = '''\
"""Regenerate with: omni-kit patchgen run olmoe/olmoe_{device}_patch_gen_config.py"""

import torch
from torch import nn
from veomni.patchgen.patch_spec import PatchConfig

config = PatchConfig(
    source_module="transformers.models.olmoe.modeling_olmoe",
    target_file="patched_modeling_olmoe_{device}.py",
    description="Olmoe",
)
{note}

@config.override_method("OlmoeForCausalLM.get_parallel_plan", description="VeOmni asks the model for it")
def olmoe_get_parallel_plan(self):
    from ..parallel_plan import get_parallel_plan

    return get_parallel_plan()
'''
_LEFT_OUT = "# Left out: the patch of the head for VeOmni's loss, which VEO502 shows.\n"
_LOSS = """

config.add_import("veomni.utils.model_outputs", names=["MoeCausalLMOutputWithLogProbs"])


@config.override_method("OlmoeForCausalLM.forward", description="VeOmni's loss contract")
def olmoe_for_causal_lm_forward(
    self,
    input_ids=None,
    attention_mask=None,
    position_ids=None,
    past_key_values=None,
    inputs_embeds=None,
    labels=None,
    use_cache=None,
    output_router_logits=None,
    logits_to_keep=0,
    **kwargs,
):
    if output_router_logits is None:
        output_router_logits = self.config.output_router_logits
    outputs = self.model(
        input_ids=input_ids,
        attention_mask=attention_mask,
        position_ids=position_ids,
        past_key_values=past_key_values,
        inputs_embeds=inputs_embeds,
        use_cache=use_cache,
        output_router_logits=output_router_logits,
        **kwargs,
    )
    kept = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
    hidden_states, weights = outputs.last_hidden_state[:, kept, :], self.lm_head.weight
    others = {name: value for name, value in outputs.items() if name != "last_hidden_state"}
    logits = self.lm_head(hidden_states)
    if labels is None:
        return MoeCausalLMOutputWithLogProbs(logits=logits, **others)
"""
LOSS = "self.loss_function(logits, labels, self.vocab_size, hidden_states=hidden_states, weights=weights)"
"""A call of VeOmni's loss function in the body of `loss_contract`."""
OUTPUT = """\
    aux_loss = None
    if output_router_logits:
        aux_loss = load_balancing_loss_func(
            outputs.router_logits, self.num_experts, self.num_experts_per_tok, attention_mask
        )
        loss = loss + self.router_aux_loss_coef * aux_loss
    return MoeCausalLMOutputWithLogProbs(loss=loss, logits=logits, aux_loss=aux_loss, fused_linear_aux=aux, **others)
"""
"""End of `loss_contract`."""


def patch_config(*patches: str, device: str = "gpu") -> str:
    """Return a patch config: the parallel plan that a model with stacked experts needs, and these patches.

    Without `loss_contract` among them it says that this one is left out: a model needs it, and it is long.
    """
    note = "" if any(patch.startswith(_LOSS) for patch in patches) else _LEFT_OUT
    return _CONFIG.format(device=device, note=note) + "".join(patches)


def loss_contract(body: str) -> str:
    """Return a patch of the language model's forward; its body begins where there are logits, and labels."""
    return _LOSS + body
