"""Possible layouts of noisy latents."""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from omni_kit.toys.batches.denoiser.arguments import SHAPES
from omni_kit.toys.batches.denoiser.embeddings import numbers
from omni_kit.toys.batches.denoiser.options import Argument, Option
from omni_kit.toys.batches.denoiser.sizes import Sizes, is_film, patch_of, side_of
from omni_kit.toys.tensors import Tensors

# How authors call the channels of latents.
_CHANNELS = re.compile(r"^(in|input|in_visual|latent|mel|io|image|embedding)_(channels?|chans?|dims?)$|^channels$")
_COUNTS_FRAMES = re.compile(r"^num_(\w+_)?frames$")
_OTHER_WIDTHS = 8
_ITEM = "[0]"
_PACKED = frozenset({"img_ids", "latent_ids", "height"})  # who says where patches are gets them in a row
_ROW, _PICTURE, _VECTOR, _PIXEL, _WORDS = "1nc", "1chw", "1c", "1coo", "1n"
_VOCABULARY = re.compile(r"vocab|^(num|n)_tokens$")
_OF_WORDS = re.compile(r"^(input_?)?(ids|indices|tokens|tokens_ids)$|_(ids|indices|tokens)$")
_FILMS = ("1cfhw", "1fchw", "1fhwc")
_SOUNDS = ("1cs", "1s", "1ct", "1t")  # waves
_OF_SOUND = re.compile(r"^(noisy_)?(audios?|wavs?|waves?|waveforms?|signals?)$")
_WAVES = {"s": (768, 1280), "t": (900, 1500)}  # multiples of the steps by which vocoders make them from frames
_FRAMES, _LAST = "fchw", "fhwc"  # frames as a batch, and with the channels last
_ROWS = 2
_MANY_LEVELS = 4  # of a U-Net, which halves sizes between them: no side of a small grid divides by 8
_AT_CHANNELS = 1  # of a batch, as documentations say it: [B, 1, M, T]


@dataclass(frozen=True)
class Layout:
    """One way to lay latents out.

    Attributes:
        axes: what the axes are: 1, c(hannels), f(rames), h (rows), w (columns), n (patches), p (patches of pictures),
            o (one place), s or t (of a wave). Without channels they are numbers of words, or a wave.
        inside: "[0]" where the latents are the only item of a list.
        square: as many rows as columns.
        fixed: as many rows and columns as the config says.
        coarse: rows and columns, or the length of a row, divide by 8 or more.
        rows: every other argument has as many rows, too: as there are frames where those are the batch, or two.
    """

    axes: str
    film: bool
    channels: int
    inside: str = ""
    square: bool = False
    fixed: bool = False
    coarse: bool = False
    rows: bool = False

    def __call__(self, sizes: Sizes) -> Tensors:
        """Return the latents of a sample."""
        frames, rows, columns = sizes.latents
        pictures = sum(math.prod(size) for size in sizes.pictures)
        known = {
            "1": _ROWS if self.rows else 1,
            "c": self.channels,
            "f": frames,
            "h": rows,
            "w": columns,
            "n": sizes.tokens,
            "p": pictures,
            "o": 1,
            **{axis: lengths[sizes.index] for axis, lengths in _WAVES.items()},
        }
        if self.axes == _WORDS:
            return {self.inside: numbers(sizes, (known["1"], known["n"])).expand(known["1"], -1)}
        return {self.inside: sizes.values("latents", [known[axis] for axis in self.axes])}


@dataclass(frozen=True)
class StatedLayout(Layout):
    """Latents as a person states them, laid out as latents with as many axes usually are.

    Attributes:
        option: makes them.
    """

    option: Option | None = None

    def __call__(self, sizes: Sizes) -> Tensors:
        """Return the latents of a sample."""
        assert self.option is not None
        return self.option(sizes)


def stated_layout(option: Option, dimensions: int) -> StatedLayout:
    """Return the layout of what an option makes."""
    axes = next((one for one in (_PICTURE, _ROW, _FILMS[0], _VECTOR) if len(one) == dimensions), "1" * dimensions)
    return StatedLayout(axes, axes in _FILMS, 0, option=option)


def layouts(argument: Argument, sizes: Sizes, names: Sequence[str], parts: int = 1) -> list[Layout]:
    """Return the possible layouts of a model's latents, the likeliest first.

    Args:
        names: of all arguments of the forward.
        parts: how many tensors of their shape the model joins first.
    """
    ways = list(dict.fromkeys(_ways(argument, is_film(sizes.config), names)))
    if argument.is_whole or any(map(_VOCABULARY.search, sizes.config)):
        first = argument.is_whole or _OF_WORDS.search(argument.name)
        ways.insert(0 if first else len(ways), Layout(_WORDS, False, 0))
    if argument.rank is not None and SHAPES not in names:
        ways.sort(key=lambda way: len(way.axes) != argument.rank)
        ways = [way for way in ways if way.axes != _VECTOR or argument.rank == len(_VECTOR)]
        as_read = [way for way in ways if len(way.axes) == argument.rank and not way.inside]
        ways = as_read if argument.exact and as_read else ways
    named = [value for key, value in sizes.config.items() if _CHANNELS.search(key) and isinstance(value, int)]
    whole = math.prod(patch_of(sizes.config))  # a layer may take whole patches
    of_patches = [width // whole for width in sizes.widths[:_OTHER_WIDTHS] if width % whole == 0]
    share = [width // parts for width in named if parts > 1 and width % parts == 0]
    said = [argument.lengths[_AT_CHANNELS]] if argument.rank and _AT_CHANNELS in argument.lengths else []
    widths = dict.fromkeys([*share, *named, *said, *sizes.widths[:_OTHER_WIDTHS], *of_patches, *_said(sizes)])
    has_size = side_of(sizes.config) is not None or replace(sizes, fixed=True).tokens != sizes.tokens
    shapes: list[dict[str, Any]] = [{"fixed": True}] if has_size else []
    more: list[dict[str, Any]] = [{}, {"square": True}, {"coarse": True}]
    shapes += more if sizes.levels < _MANY_LEVELS else [more[-1], *more[:-1]]
    shapes += [{"rows": True}, {"rows": True, "coarse": True}]
    sounds = [Layout(axes, False, 1) for axes in _SOUNDS if _OF_SOUND.search(argument.name)]
    return [*sounds, *(replace(way, channels=width, **shape) for shape in shapes for width in widths for way in ways)]


def _said(sizes: Sizes) -> list[int]:
    """Widths that the config says and no layer takes: it is joined with another input first."""
    named = [value for key, value in sizes.config.items() if key.endswith(("_dim", "channels")) and type(value) is int]
    return [width for width in named if width not in sizes.widths]


def _ways(argument: Argument, film: bool, names: Sequence[str]) -> Iterator[Layout]:
    films = [Layout(axes, True, 0) for axes in _FILMS]
    pictures = [Layout(_PICTURE, False, 0)]
    if SHAPES in names:
        yield Layout("1pc", False, 0)
    if argument.is_list:
        yield Layout("cfhw", film, 0, _ITEM)
    if not _PACKED.isdisjoint(names):
        yield Layout(_ROW, film or any(map(_COUNTS_FRAMES.search, names)), 0)
    elif any(map(_COUNTS_FRAMES.search, names)):
        yield Layout(_FRAMES, True, 0)
    pointwise = films[-1:]  # its channels come last: what treats every place alike takes it, too
    yield from [*films, *pictures] if film else [*pictures, *films[:-1]]
    yield Layout(_ROW, film, 0)
    yield from pointwise
    yield from (Layout(axes, film, 0) for axes in (_FRAMES, "1cn", _VECTOR))
    yield from (Layout(_LAST, way, 0) for way in dict.fromkeys((film, False)))  # a film by itself, or pictures
    yield from (Layout("cfhw", way, 0, _ITEM) for way in (True, False))
    yield Layout("chw", False, 0, _ITEM)
    yield Layout(_PIXEL, False, 0)  # the whole latents are one vector
