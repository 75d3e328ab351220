"""Masks: over a text, over patches, over both, and over the places of latents."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import torch

from omni_kit.toys.batches.denoiser.options import (
    LATENTS,
    PICTURE,
    Argument,
    Dim,
    Fill,
    Option,
    frames,
    option,
    patches,
    plus,
    words,
)
from omni_kit.toys.batches.denoiser.sizes import Sizes
from omni_kit.toys.tensors import Tensors

_MASKED = (2, -1)  # a mask need not be a suffix
_KINDS = (torch.bool, torch.long, torch.float32, torch.int32)


def masked(kind: torch.dtype = torch.float32) -> Fill:
    """Ones, and zeros at two places of every row."""

    def fill(sizes: Sizes, shape: tuple[int, ...]) -> torch.Tensor:
        mask = torch.ones(*shape, dtype=kind)
        mask[..., _MASKED] = 0
        return mask

    return fill


def mask(argument: Argument, sizes: Sizes) -> Iterator[Option]:
    """Masks of bools, whole numbers and floats; of rows, of latents, of squares, then of a text for all queries."""
    text = words(argument.name)
    spans: tuple[Dim, ...] = (text, patches, plus(text, patches), plus(text, patches, 1))
    if argument.is_list or argument.picked:
        yield from (option(masked(kind), 1, text, where="[0]") for kind in _KINDS)
    for span, kind in product(spans, _KINDS):
        yield option(masked(kind), 1, span)
    for kind in _KINDS:
        yield option(masked(kind), 1, 1, *PICTURE)
        yield option(masked(kind), 1, 1, *LATENTS)
        yield option(masked(kind), 1, *LATENTS)
    for span, kind in product(spans, _KINDS):
        yield option(masked(kind), 1, span, span)
    for span, kind in product((text, patches), _KINDS):
        yield option(masked(kind), 1, 1, span)
    # One number a sample, which drops or keeps its condition: half of it, so that neither hides what is masked.
    yield option(lambda sizes, shape: torch.full(shape, 0.5), 1)


@dataclass(frozen=True)
class OfFrames:
    """Flags of the frames of a sample, of which the last one is set: one row, also where the frames are the batch."""

    kind: torch.dtype
    one_row = True

    def __call__(self, sizes: Sizes) -> Tensors:
        """See `Option`."""
        count = frames(sizes)
        return {"": (torch.arange(count) == count - 1).to(self.kind)[None]}


def of_frames(argument: Argument, sizes: Sizes) -> Iterator[Option]:
    """Yield a flag for each frame, as of pictures among films."""
    yield from map(OfFrames, (torch.float32, torch.bool, torch.long))


def dropped(argument: Argument, sizes: Sizes) -> Iterator[Option]:
    """Return the patches, or the whole samples, that have no condition."""
    yield option(_dropped, 1, patches)
    yield option(lambda sizes, shape: torch.zeros(*shape, dtype=torch.bool), 1)


def _dropped(sizes: Sizes, shape: tuple[int, ...]) -> torch.Tensor:
    return ~masked(torch.bool)(sizes, shape)
