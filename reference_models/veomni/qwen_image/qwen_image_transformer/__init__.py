"""The transformer that is trained: importing this registers "QwenImageTransformer2DModel"."""

from veomni.models.loader import MODEL_CONFIG_REGISTRY, MODELING_REGISTRY


# VeOmni registers this key itself: assigning, not registering, replaces it.
def register_qwen_image_transformer_config():
    """The config: the arguments of diffusers' constructor."""
    from .configuration_qwen_image_transformer import QwenImageTransformerConfig

    return QwenImageTransformerConfig


def register_qwen_image_transformer_modeling(architecture: str | None = None):
    """The wrapper. Nothing in diffusers is changed, neither here nor by the import."""
    from .modeling_qwen_image_transformer import QwenImageTransformer2DModel

    return QwenImageTransformer2DModel


MODEL_CONFIG_REGISTRY["QwenImageTransformer2DModel"] = register_qwen_image_transformer_config
MODELING_REGISTRY["QwenImageTransformer2DModel"] = register_qwen_image_transformer_modeling
