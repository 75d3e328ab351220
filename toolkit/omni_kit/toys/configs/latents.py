"""Channels of latents in a toy: small, and in the relations that the real ones have."""

import math
from collections.abc import Mapping
from typing import Any

LATENT, LATENT_AND_MORE = 6, 14
_SECOND_LATENT = 10
_PAIRS = (("in_channels", "out_channels"), ("in_visual_dim", "out_visual_dim"))
_PICTURE_AND_MASK = 4  # channels of the mask that tells which frames are given


def channel_names(config: Mapping[str, Any]) -> tuple[str, str]:
    """Return the arguments of a denoiser's constructor for the channels that go in and come out."""
    return next((pair for pair in _PAIRS if pair[0] in config), _PAIRS[0])


def fit_channels(toy: dict[str, Any], config: Mapping[str, Any], second: str) -> None:
    """Set the channels that come in and go out.

    Args:
        toy: is changed.
        config: the real one.
        second: what the names of a second stream's arguments begin with.
    """
    for going_in, out in _PAIRS:
        _fit(toy, config, going_in, out, LATENT)
        _fit(toy, config, second + going_in, second + out, _SECOND_LATENT)
    _fit_latents_of_pictures(toy, config)


def _fit(toy: dict[str, Any], config: Mapping[str, Any], in_key: str, out_key: str, latent: int) -> None:
    going_in, out = config.get(in_key), config.get(out_key)
    if in_key not in config or config.get("num_vector_embeds"):  # classes come in, not channels
        return
    toy[in_key] = latent
    if going_in is None and out_key in config:  # neither has a default
        toy[out_key] = latent
    if out is None:
        return
    toy[out_key] = latent
    if going_in is None or going_in == out:
        return
    if out % going_in == 0:  # a learned sigma beside the mean
        toy[out_key] = latent * (out // going_in)
    elif going_in == _packed(config) * out:
        toy[in_key] = going_in // out * latent
    else:  # latents with a mask or a picture beside them
        toy[in_key] = LATENT_AND_MORE


def _packed(config: Mapping[str, Any]) -> int:
    """Return how many elements of latents a patch contains in each channel."""
    patch = config.get("patch_size")
    return math.prod(patch) if isinstance(patch, (list, tuple)) else int(patch or 1) ** 2


def _fit_latents_of_pictures(toy: dict[str, Any], config: Mapping[str, Any]) -> None:
    """Set the input channels of models that take latents of a picture and a mask: twice the latents, and the mask."""
    if isinstance(config.get("latent_channels"), int):
        toy["latent_channels"] = LATENT
        toy["in_channels"] = 2 * LATENT + _PICTURE_AND_MASK
