"""Sizes of a sample: latents, texts and the widths that the model accepts."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import torch
from torch import nn

from omni_kit.toys.batches.denoiser.argument_names import length_of, stem
from omni_kit.toys.configs.denoiser import IS_COLUMNS, IS_HEIGHT, IS_ROWS, IS_SIDE, IS_TEXT_LENGTH
from omni_kit.toys.weights import shuffled_ramp

# Frames, rows and columns of patches, and the length of the text. No two sizes of a sample are alike.
_GRIDS = ((3, 4, 2), (2, 5, 3))
PICTURES = (((1, 4, 6),), ((1, 5, 3), (1, 2, 4)))  # the second sample has a picture as its condition
_SIDES = (4, 5)  # where a model takes squares alone
_TEXT = (9, 12)  # odd with an even grid, and even with an odd one: each stream is shared unevenly without the other
_HALVED, _MOST_HALVED = 8, 32  # what a U-Net's sizes divide by: of few levels, and of many
_IS_LEVELS = re.compile(r"(channels|mults?|multipliers?|widths|dims|features)$")
_STRIDING = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d,
             nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d)  # fmt: skip
_LONG_FILM, _LONG_TEXT = 8, 256  # frames and words of a sample as people train them
_LONGER = 2  # how much longer a second text is than the first, and a third than the second
ARGUMENTS = "omni_kit_arguments"  # where a model without a config of its own holds what it was made of
SCALE = 2.0  # inputs as large as latents and embeddings are
_SECOND = re.compile(r"(_2|_t5|t5$|audio|llama|image|siglip)")
# Lengths that some models have parameters or positions for, and so take no other: which text, and the argument.
_FIXED = (
    (re.compile(r"t5$"), "text_len_t5"),
    (re.compile(r"^(?!.*t5$)"), "text_len"),
    (re.compile(""), "max_text_seq_length"),
    (re.compile(""), "num_embeddings"),
)
_FILM = re.compile(r"frame|video|temporal|patch_size_t|rope_max_seq_len|f_patch")


@dataclass(frozen=True)
class Sizes:
    """One sample to be made.

    Attributes:
        index: which of the samples.
        config: the model's.
        widths: what the model's layers take, in the order of the layers.
        film: latents have frames.
        square: they have as many rows as columns.
        fixed: they have the size that the config says, of which a model may have positions.
        coarse: rows and columns, or the length of a row, divide by 8 or more, as a U-Net halves them on its way down.
        row: the latents are a row, such as the frames of a sound.
        noisy: their shape; empty before it is chosen.
        length: about how many patches the sample has; 0 for one as small as a toy's.
        steps: by how much the strides of the model's layers divide sizes together.
    """

    index: int
    config: Mapping[str, Any]
    widths: tuple[int, ...]
    film: bool = False
    square: bool = False
    fixed: bool = False
    coarse: bool = False
    row: bool = False
    noisy: tuple[int, ...] = ()
    length: int = 0
    steps: int = 1

    @property
    def grid(self) -> tuple[int, int, int]:
        """Frames, rows and columns, in patches."""
        frames, rows, columns = self._long if self.length else _GRIDS[self.index]
        if self.square:
            rows = columns = math.isqrt(rows * columns) if self.length else _SIDES[self.index]
        if self.fixed and (sides := side_of(self.config)):
            rows, columns = (max(1, side // step) for side, step in zip(sides, patch_of(self.config)[1:], strict=True))
        fixed = self.config.get("video_length") or self.config.get("num_frames")  # as many as there are positions for
        return (fixed or frames) if self.film else 1, rows, columns

    @property
    def _long(self) -> tuple[int, int, int]:
        frames = min(_LONG_FILM, self.length) if self.film else 1
        rows = math.isqrt(self.length // frames)
        return frames, rows, self.length // frames // rows

    @property
    def pictures(self) -> tuple[tuple[int, int, int], ...]:
        """Frames, rows and columns of the pictures of a sample, the noisy one first."""
        return (self._long,) if self.length else PICTURES[self.index]

    @property
    def tokens(self) -> int:
        """Return the number of patches."""
        fixed = self.fixed and not self.film and self._own_length("latent")
        return fixed or math.prod(self.grid) * (self._halved if self.coarse and self.row else 1)

    @property
    def _halved(self) -> int:
        """Return what sizes divide by that are halved between all levels, of which a list has the widths, and after the
        last one if the layers' strides say so; without such a list by these strides.
        """
        last = self.steps >= 1 << self.levels
        halved = 1 << self.levels - (not last) if self.levels else self.steps
        return min(max(_HALVED, halved), _MOST_HALVED)

    @property
    def levels(self) -> int:
        """Return the number of levels of a U-Net, of which a list has the widths; 0 without such a list."""
        return max((len(value.split(",") if isinstance(value, str) else value) for name, value in self.config.items()
                    if _IS_LEVELS.search(name) and isinstance(value, list | tuple | str)), default=0)  # fmt: skip

    @property
    def latents(self) -> tuple[int, int, int]:
        """Frames, rows and columns, in elements of the latents."""
        frames, rows, columns = self.grid
        step_frames, step_rows, step_columns = patch_of(self.config)
        if self.coarse:
            step_rows, step_columns = self._halved * step_rows, self._halved * step_columns
            fewer = 2 if self._halved > _HALVED else 1
            rows, columns = -(-rows // fewer), -(-columns // fewer)
        return frames * step_frames if self.film else 1, rows * step_rows, columns * step_columns

    def text(self, name: str) -> int:
        """Return the length of a text; a second one is longer."""
        fixed = next((key for pattern, key in _FIXED if pattern.search(name) and self.config.get(key)), None)
        if fixed:
            return int(self.config[fixed])
        if (own := self._own_length(name)) is not None:
            return own
        length = next((value for key, value in self.config.items() if IS_TEXT_LENGTH.search(key)), None)
        if isinstance(length, int):
            return length
        return (_LONG_TEXT if self.length else _TEXT[self.index]) + (_LONGER if _SECOND.search(name) else 0)

    def _own_length(self, name: str) -> int | None:
        """Return the length that the config has for this argument: `clip_seq_len` for `clip_f`."""
        found = next((value for key, value in self.config.items() if length_of(key) == stem(name)), None)
        return found if isinstance(found, int) and not isinstance(found, bool) else None

    def values(self, name: str, shape: Sequence[int]) -> torch.Tensor:
        """Return numbers of which no two are alike."""
        return SCALE * _ramp(f"denoiser {self.index} {name}", tuple(shape))

    @cached_property
    def blocks(self) -> int:
        """Return the number of blocks of the model, of all kinds that follow each other."""
        keys = ("num_layers", "num_single_layers")
        return sum(self.config.get(key) or 0 for key in keys)


# A search makes the same inputs over and over.
_ramp = lru_cache(maxsize=256)(shuffled_ramp)


def side_of(config: Mapping[str, Any]) -> tuple[int, int] | None:
    """Return rows and columns of the latents that a config says; None if it says none."""
    said = next((value for key, value in config.items() if IS_SIDE.search(key)), None)
    if said is None:  # each by itself
        both = [
            next((value for key, value in config.items() if one.search(key)), None) for one in (IS_ROWS, IS_COLUMNS)
        ]
        height = next((value for key, value in config.items() if IS_HEIGHT.search(key)), None)
        said = both if None not in both else height if both[1] is None else None
    if isinstance(said, int):
        return said, said
    if isinstance(said, (list, tuple)) and len(said) >= 2 and all(isinstance(one, int) for one in said):
        return said[-2], said[-1]
    return None


def patch_of(config: Mapping[str, Any]) -> tuple[int, int, int]:
    """Return the frames, rows and columns of a patch."""
    if "all_patch_size" in config:  # one of several that a call may choose
        return config["all_f_patch_size"][0], config["all_patch_size"][0], config["all_patch_size"][0]
    patch = config.get("patch_size", 1)
    if isinstance(patch, (list, tuple)):
        return (1, *patch) if len(patch) == 2 else tuple(patch)
    rows = int(patch or 1)
    return int(config.get("patch_size_t") or 1), rows, rows


def is_film(config: Mapping[str, Any]) -> bool:
    """Return whether a model's latents have frames, as the names and the shape of its patches say."""
    patch = config.get("patch_size")
    return (isinstance(patch, (list, tuple)) and len(patch) == 3) or any(map(_FILM.search, config))


def steps_of(model: nn.Module) -> int:
    """Return the product of the strides of a model's convolutions and poolings."""
    strides = (getattr(one, "stride", 1) for one in model.modules() if isinstance(one, _STRIDING))
    return math.prod(one[-1] if isinstance(one, tuple) else one for one in strides)


def widths_of(model: nn.Module) -> tuple[int, ...]:
    """Return the input widths of a model's layers, each once, in the order of the layers."""
    found: dict[int, None] = {}
    for module in [*model.modules()][1:]:  # its parts
        named = [getattr(module, attribute, None) for attribute in ("in_features", "in_channels", "num_features")]
        found |= dict.fromkeys(width for width in named if isinstance(width, int))
        weight = module._parameters.get("weight")
        own = not any(isinstance(width, int) for width in named) and not isinstance(module, nn.Embedding)
        if own and weight is not None and weight.ndim > 1:  # a layer of the authors' own
            found[weight.shape[1]] = None
        if isinstance(module, nn.MultiheadAttention) and module.kdim != module.embed_dim:
            found[module.kdim] = None  # what it attends to is of another width
        if isinstance(shape := getattr(module, "normalized_shape", None), tuple):
            found[shape[-1]] = None
    return tuple(found)
