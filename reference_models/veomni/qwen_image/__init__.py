"""QwenImageTransformer2DModel for VeOmni: importing this registers it, and its condition model."""

from . import qwen_image_condition, qwen_image_transformer

__all__ = ["qwen_image_condition", "qwen_image_transformer"]
