"""Qwen25OmniThinker for VeOmni: importing this package registers model_type "qwen2_5_omni_thinker"."""

from veomni.data.data_transform import DATA_TRANSFORM_REGISTRY
from veomni.models.loader import MODELING_REGISTRY


@MODELING_REGISTRY.register("qwen2_5_omni_thinker")
def register_qwen2_5_omni_thinker_modeling(architecture: str | None):
    """The class for `architectures[0]` of a config; the language model when a config names none."""
    from .generated import patched_modeling_qwen2_5_omni_thinker_gpu as modeling

    classes = {
        "Qwen2_5OmniThinkerTextModel": modeling.Qwen2_5OmniThinkerTextModel,
        "Qwen2_5OmniThinkerForConditionalGeneration": modeling.Qwen2_5OmniThinkerForConditionalGeneration,
    }

    wanted = architecture or "Qwen2_5OmniThinkerForConditionalGeneration"
    if wanted not in classes:
        raise ValueError(f"qwen2_5_omni_thinker has no class {wanted}; it has {', '.join(classes)}")
    return classes[wanted]


@DATA_TRANSFORM_REGISTRY.register("qwen2_5_omni_thinker")
def process_qwen2_5_omni_thinker_sample(sample, **options):
    """One sample for VeOmni's data pipeline; see media.py."""
    from .media import process_sample

    return process_sample(sample, **options)
