"""Olmoe for VeOmni: importing this package registers model_type "olmoe"."""

from veomni.lora.target_mapping import convert_fused_moe_lora_targets
from veomni.models.loader import MODELING_REGISTRY
from veomni.utils import moe_monitor, moe_router_replay

# This model's router calls VeOmni's expert counter and router replay.
moe_monitor.register_external_record_router("OlmoeTopKRouter")
moe_router_replay.SUPPORTED_MOE_MODEL_TYPES |= {"olmoe"}


def convert_olmoe_lora_targets(_model, lora_modules, target_parameter_patterns):
    """Expert LoRA targets the stacked parameters: there are no Linear modules to wrap.

    A pattern begins with `*`, because each head names the part that holds the layers as it likes.
    """
    return convert_fused_moe_lora_targets(
        lora_modules,
        target_parameter_patterns,
        "*layers.*.mlp.experts.gate_up_proj",
        "*layers.*.mlp.experts.down_proj",
    )


@MODELING_REGISTRY.register("olmoe")
def register_olmoe_modeling(architecture: str | None):
    """The class for `architectures[0]` of a config; the language model when a config names none."""
    from .checkpoint_tensor_converter import (
        convert_olmoe_fqn_to_index_mapping,
        create_olmoe_checkpoint_tensor_converter,
    )
    from .generated import patched_modeling_olmoe_gpu as modeling

    classes = {
        "OlmoeForCausalLM": modeling.OlmoeForCausalLM,
        "OlmoeModel": modeling.OlmoeModel,
    }
    for model_class in classes.values():
        model_class._create_checkpoint_tensor_converter = staticmethod(create_olmoe_checkpoint_tensor_converter)
        model_class._convert_fqn_to_index_mapping = staticmethod(convert_olmoe_fqn_to_index_mapping)
        model_class._convert_lora_targets_to_parameters = staticmethod(convert_olmoe_lora_targets)

    wanted = architecture or "OlmoeForCausalLM"
    if wanted not in classes:
        raise ValueError(f"olmoe has no class {wanted}; it has {', '.join(classes)}")
    return classes[wanted]
