"""Small models of diffusers, built and saved by diffusers itself."""

import inspect
from pathlib import Path
from typing import Any

# Arguments that some classes have no usable default for.
NEEDED: dict[str, dict[str, Any]] = {
    "EasyAnimateTransformer3DModel": {
        "num_attention_heads": 4, "attention_head_dim": 64, "in_channels": 16, "out_channels": 16, "patch_size": 2,
        "sample_width": 90,
    },
    "HiDreamImageTransformer2DModel": {
        "patch_size": 2, "in_channels": 16, "out_channels": 16, "num_layers": 2, "num_single_layers": 2,
        "attention_head_dim": 128, "num_attention_heads": 2, "caption_channels": [32, 32], "text_emb_dim": 24,
        "num_routed_experts": 4, "num_activated_experts": 2, "axes_dims_rope": [64, 32, 32], "llama_layers": [0, 1],
        "max_resolution": [128, 128],
    },
    "HunyuanDiT2DModel": {
        "num_attention_heads": 4, "in_channels": 4, "patch_size": 2, "cross_attention_dim": 28, "sample_size": 16,
        "pooled_projection_dim": 44,
    },
    "LatteTransformer3DModel": {
        "in_channels": 4, "out_channels": 8, "patch_size": 2, "sample_size": 16, "caption_channels": 28,
        "cross_attention_dim": 1408, "norm_type": "ada_norm_single", "norm_elementwise_affine": False,
    },
    "LuminaNextDiT2DModel": {
        "num_kv_heads": 8, "cross_attention_dim": 2048, "hidden_size": 128, "num_attention_heads": 8, "num_layers": 2,
    },
    "OmniGenTransformer2DModel": {"rope_scaling": {"long_factor": [1.0] * 48, "short_factor": [1.0] * 48}},
    "Transformer2DModel": {"in_channels": 32, "cross_attention_dim": 24},
    "TransformerTemporalModel": {"in_channels": 32},
    "WanVACETransformer3DModel": {"vace_layers": [0, 1]},
}  # fmt: skip
WAN: dict[str, Any] = {
    "num_attention_heads": 2, "attention_head_dim": 12, "in_channels": 4, "out_channels": 4, "text_dim": 16,
    "freq_dim": 16, "ffn_dim": 32, "num_layers": 2,
}  # fmt: skip


def model_class(name: str) -> Any:
    """A class of the installed diffusers."""
    import diffusers

    return getattr(diffusers, name)


def shallow_config(name: str) -> dict[str, Any]:
    """Arguments of a model of a class with two layers of each kind, and what it needs beside its defaults."""
    parameters = list(inspect.signature(model_class(name).__init__).parameters.values())[1:]
    counts = {p.name: min(p.default, 2) for p in parameters if p.name.endswith("layers") and type(p.default) is int}
    return {**counts, **NEEDED.get(name, {})}


def shapes_on_meta(name: str, config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Names and shapes of what diffusers builds and saves."""
    import torch

    with torch.device("meta"):
        model = model_class(name)(**config)
    return {key: tuple(tensor.shape) for key, tensor in model.state_dict().items()}


def save(name: str, into: Path, config: dict[str, Any], **options: Any) -> Path:
    """A model of a class, saved by diffusers."""
    model_class(name)(**config).save_pretrained(into, **options)
    return into
