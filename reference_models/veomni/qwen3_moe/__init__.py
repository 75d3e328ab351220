"""Qwen3Moe for VeOmni: importing this package registers model_type "qwen3_moe"."""

from veomni.lora.target_mapping import convert_fused_moe_lora_targets
from veomni.models.loader import MODELING_REGISTRY
from veomni.utils import moe_router_replay

# This model's router calls VeOmni's expert counter and router replay.
moe_router_replay.SUPPORTED_MOE_MODEL_TYPES |= {"qwen3_moe"}


def convert_qwen3_moe_lora_targets(_model, lora_modules, target_parameter_patterns):
    """Expert LoRA targets the stacked parameters: there are no Linear modules to wrap.

    A pattern begins with `*`, because each head names the part that holds the layers as it likes.
    """
    return convert_fused_moe_lora_targets(
        lora_modules,
        target_parameter_patterns,
        "*layers.*.mlp.experts.gate_up_proj",
        "*layers.*.mlp.experts.down_proj",
    )


# VeOmni registers this model_type itself: assigning, not registering, replaces it.
def register_qwen3_moe_modeling(architecture: str | None):
    """The class for `architectures[0]` of a config; the language model when a config names none."""
    from .checkpoint_tensor_converter import (
        convert_qwen3_moe_fqn_to_index_mapping,
        create_qwen3_moe_checkpoint_tensor_converter,
    )
    from .generated import patched_modeling_qwen3_moe_gpu as modeling

    classes = {
        "Qwen3MoeForCausalLM": modeling.Qwen3MoeForCausalLM,
        "Qwen3MoeForQuestionAnswering": modeling.Qwen3MoeForQuestionAnswering,
        "Qwen3MoeModel": modeling.Qwen3MoeModel,
        "Qwen3MoeForSequenceClassification": modeling.Qwen3MoeForSequenceClassification,
        "Qwen3MoeForTokenClassification": modeling.Qwen3MoeForTokenClassification,
    }
    for model_class in classes.values():
        model_class._create_checkpoint_tensor_converter = staticmethod(create_qwen3_moe_checkpoint_tensor_converter)
        model_class._convert_fqn_to_index_mapping = staticmethod(convert_qwen3_moe_fqn_to_index_mapping)
        model_class._convert_lora_targets_to_parameters = staticmethod(convert_qwen3_moe_lora_targets)

    wanted = architecture or "Qwen3MoeForCausalLM"
    if wanted not in classes:
        raise ValueError(f"qwen3_moe has no class {wanted}; it has {', '.join(classes)}")
    return classes[wanted]


MODELING_REGISTRY["qwen3_moe"] = register_qwen3_moe_modeling
