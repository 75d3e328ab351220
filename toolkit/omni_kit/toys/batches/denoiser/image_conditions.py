"""Latents and pixels next to the noisy latents: pictures that are a condition, earlier frames, sound."""

from collections.abc import Iterator
from itertools import product

import torch

from omni_kit.toys.batches.denoiser.options import (
    PICTURE,
    Argument,
    Dim,
    LikeLatents,
    Option,
    latent,
    option,
    patches,
    values,
    words,
)
from omni_kit.toys.batches.denoiser.sizes import Sizes, patch_of

_SIDE = 2  # rows and columns of patches of a picture that is a condition
_COLOURS, _PIXELS = 3, 16
_MOST_FRAMES = 13
_FRAMES_OF_LATENTS: tuple[Dim, ...] = (latent(0), 1, latent(0, 2), latent(0, 4), latent(0, more=-1))


def latents(argument: Argument, sizes: Sizes) -> Iterator[Option]:
    """Latents of as many frames as the noisy ones, of one, of more, of one less; a row; or a picture in a list."""
    fill, text, channels = values(argument.name), words(argument.name), _channels(sizes)
    row = [option(fill, 1, text, width) for width in channels]
    sides = [_SIDE * step for step in patch_of(sizes.config)[1:]]
    if argument.is_list:
        yield from (option(fill, 1, width, *sides, where="[0]") for width in channels)
    if "audio" in argument.name:
        yield from row
    for span, width in product(_FRAMES_OF_LATENTS, channels):
        yield option(fill, 1, width, span, *PICTURE)
    yield from row
    yield from (option(fill, 1, patches, width) for width in channels)
    yield LikeLatents(argument.name)


def _channels(sizes: Sizes) -> list[int]:
    named = [value for key, value in sizes.config.items() if "channels" in key and isinstance(value, int)]
    return list(dict.fromkeys([*named, *sizes.widths]))


def places(argument: Argument, sizes: Sizes) -> Iterator[Option]:
    """Return the words of the first text that are placeholders for the condition image's patches."""
    yield lambda sizes: {"{0}#": torch.tensor([[1, 1 + _SIDE**2]])}


def pixels(argument: Argument, sizes: Sizes) -> Iterator[Option]:
    """Frames of pixels, of which a model's own encoder makes fewer."""
    side = next((value for key, value in sizes.config.items() if key.endswith("encoder_size")), _PIXELS)
    for count in range(1, _MOST_FRAMES):
        # Four frames of pixels make one of latents, so the second sample has as many less as it has frames less.
        yield option(values("pixels"), 1, _COLOURS, latent(0, 4, count - 8), side, side)
