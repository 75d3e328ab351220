"""Derives a toy config of a diffusion transformer from a real one: small, legal, and with no two dimensions alike.

diffusers has no config classes: a config is the arguments of a model's constructor. So the rules go by their names.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

HEADS, HEAD_DIM = 4, 20  # heads divide by 4, so that a toy can be spread; a width of 20 has rope axes of two sizes
INNER = HEADS * HEAD_DIM
_LATENT, _LATENT_AND_MORE = 6, 14
_AXIS = 2  # rope turns pairs

# Every value differs from every other, from the inner width, and from a patch of latent channels.
SIZES: Mapping[str, int] = {
    "num_attention_heads": HEADS,
    "attention_head_dim": HEAD_DIM,
    "num_key_value_heads": 2,
    "hidden_size": INNER,
    "caption_projection_dim": INNER,
    "ffn_dim": 112,
    "freq_dim": 32,
    "time_embed_dim": 36,
    "text_dim": 28,
    "text_embed_dim": 28,
    "joint_attention_dim": 28,
    "caption_channels": 28,
    "cross_attention_dim": 28,
    "pooled_projection_dim": 44,
    "image_dim": 52,
    "added_kv_proj_dim": INNER,
}
# Room for positions: never more than these, which the small inputs do not fill.
AT_MOST: Mapping[str, int] = {"rope_max_seq_len": 64, "pos_embed_max_size": 24, "sample_size": 16}
_AXES = ("axes_dims_rope", "axes_dim", "axes_dims", "rope_axes_dim")
_LAYERS = "layers"
_FEWEST = 2


def toy_denoiser(config: Mapping[str, Any]) -> dict[str, Any]:
    """A toy of a complete config: two blocks of each kind, small dimensions that all differ, no dropout.

    Args:
        config: every argument of the model's constructor, defaults included.

    Returns:
        A new dict. What is a decision and no size (norms, biases, patches, what is embedded) stays as it is; channels
        that are equal, or packed patches of each other, stay so, because predictions are compared with latents.
    """
    toy = {key: _shrunk(key, value) for key, value in config.items()}
    _fit_channels(toy, config)
    for key in (key for key in _AXES if isinstance(toy.get(key), (list, tuple))):
        toy[key] = type(toy[key])(_axes(toy[key], int(toy.get("attention_head_dim") or HEAD_DIM)))
    return toy


def _shrunk(key: str, value: Any) -> Any:
    if key.endswith("dropout"):
        return 0.0
    if key.endswith(_LAYERS) and isinstance(value, (list, tuple)):  # numbers of layers that differ from the others
        return type(value)(layer for layer in value if layer < _FEWEST)
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
        return value
    if key.endswith(_LAYERS):
        return min(value, _FEWEST)
    return min(value, AT_MOST[key]) if key in AT_MOST else SIZES.get(key, value)


def _fit_channels(toy: dict[str, Any], config: Mapping[str, Any]) -> None:
    """Latent channels that come in and go out, in the relation that the real ones have."""
    going_in, out, patch = (config.get(key) for key in ("in_channels", "out_channels", "patch_size"))
    if going_in is None:
        return
    packed = math.prod(patch) if isinstance(patch, (list, tuple)) else int(patch or 1) ** 2
    toy["in_channels"] = _LATENT
    if out is None:
        return
    toy["out_channels"] = _LATENT
    if going_in != out:  # packed patches; or latents with a mask or a picture beside them
        toy["in_channels"] = packed * _LATENT if going_in == packed * out else _LATENT_AND_MORE


def _axes(axes: Sequence[int], width: int) -> list[int]:
    """Even axes of different sizes that add up to `width`, in about the proportion of the real ones."""
    found = [max(_AXIS, width * axis // sum(axes) // _AXIS * _AXIS) for axis in axes]
    found[-1] += width - sum(found)
    for _ in axes:
        twins = ((i, j) for j in range(len(found)) for i in range(j) if found[i] == found[j] > _AXIS)
        if (pair := next(twins, None)) is None:
            break
        found[pair[0]] -= _AXIS
        found[pair[1]] += _AXIS
    return found
