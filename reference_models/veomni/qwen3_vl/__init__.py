"""Qwen3Vl for VeOmni: importing this package registers model_type "qwen3_vl"."""

from veomni.data.data_transform import DATA_TRANSFORM_REGISTRY
from veomni.models.loader import MODELING_REGISTRY


# VeOmni registers this model_type itself: assigning, not registering, replaces it.
def register_qwen3_vl_modeling(architecture: str | None):
    """The class for `architectures[0]` of a config; the language model when a config names none."""
    from .generated import patched_modeling_qwen3_vl_gpu as modeling

    classes = {
        "Qwen3VLForConditionalGeneration": modeling.Qwen3VLForConditionalGeneration,
        "Qwen3VLModel": modeling.Qwen3VLModel,
        "Qwen3VLTextModel": modeling.Qwen3VLTextModel,
    }

    wanted = architecture or "Qwen3VLForConditionalGeneration"
    if wanted not in classes:
        raise ValueError(f"qwen3_vl has no class {wanted}; it has {', '.join(classes)}")
    return classes[wanted]


def process_qwen3_vl_sample(sample, **options):
    """One sample for VeOmni's data pipeline; see media.py."""
    from .media import process_sample

    return process_sample(sample, **options)


# VeOmni's own transform of this name expects another sample format: assigning replaces it.
DATA_TRANSFORM_REGISTRY["qwen3_vl"] = process_qwen3_vl_sample


MODELING_REGISTRY["qwen3_vl"] = register_qwen3_vl_modeling
