"""The frozen condition model: importing this registers "WanTransformer3DModelCondition"."""

from veomni.models.loader import MODEL_CONFIG_REGISTRY, MODELING_REGISTRY


@MODEL_CONFIG_REGISTRY.register("WanTransformer3DModelCondition")
def register_wan_condition_config():
    """Where the pipeline is, and the arguments of its call."""
    from .configuration_wan_condition import WanConditionConfig

    return WanConditionConfig


@MODELING_REGISTRY.register("WanTransformer3DModelCondition")
def register_wan_condition_modeling(architecture: str | None = None):
    """Return the model; VeOmni requests it without an architecture."""
    from .modeling_wan_condition import WanConditionModel

    return WanConditionModel
