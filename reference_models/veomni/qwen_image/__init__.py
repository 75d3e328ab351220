"""QwenImageTransformer2DModel for VeOmni: importing this registers it, and the model of its conditions."""

from . import qwen_image_condition, qwen_image_transformer

__all__ = ["qwen_image_condition", "qwen_image_transformer"]
