"""WanTransformer3DModel for VeOmni: importing this registers it, and its condition model."""

from . import wan_condition, wan_transformer

__all__ = ["wan_condition", "wan_transformer"]
