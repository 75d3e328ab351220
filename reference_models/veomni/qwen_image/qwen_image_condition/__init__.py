"""The frozen condition model: importing this registers "QwenImageTransformer2DModelCondition"."""

from veomni.models.loader import MODEL_CONFIG_REGISTRY, MODELING_REGISTRY


@MODEL_CONFIG_REGISTRY.register("QwenImageTransformer2DModelCondition")
def register_qwen_image_condition_config():
    """Where the pipeline is, and the arguments of its call."""
    from .configuration_qwen_image_condition import QwenImageConditionConfig

    return QwenImageConditionConfig


@MODELING_REGISTRY.register("QwenImageTransformer2DModelCondition")
def register_qwen_image_condition_modeling(architecture: str | None = None):
    """Return the model; VeOmni requests it without an architecture."""
    from .modeling_qwen_image_condition import QwenImageConditionModel

    return QwenImageConditionModel
