"""The transformer that is trained: importing this registers "WanTransformer3DModel"."""

from veomni.models.loader import MODEL_CONFIG_REGISTRY, MODELING_REGISTRY


# VeOmni registers this key itself: assigning, not registering, replaces it.
def register_wan_transformer_config():
    """The config: the arguments of diffusers' constructor."""
    from .configuration_wan_transformer import WanTransformerConfig

    return WanTransformerConfig


def register_wan_transformer_modeling(architecture: str | None = None):
    """The wrapper. Nothing in diffusers is changed, neither here nor by the import."""
    from .modeling_wan_transformer import WanTransformer3DModel

    return WanTransformer3DModel


MODEL_CONFIG_REGISTRY["WanTransformer3DModel"] = register_wan_transformer_config
MODELING_REGISTRY["WanTransformer3DModel"] = register_wan_transformer_modeling
