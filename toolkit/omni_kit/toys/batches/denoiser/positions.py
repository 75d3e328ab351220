"""Positions: of patches and words, as numbers or as what rope makes of them."""

import re
from collections.abc import Iterator, Sequence
from itertools import product

import torch

from omni_kit.toys.batches.denoiser.options import (
    Argument,
    Dim,
    Fill,
    Option,
    frames,
    option,
    patches,
    plus,
    several,
    words,
)
from omni_kit.toys.batches.denoiser.sizes import Sizes
from omni_kit.toys.configs.denoiser import IS_HEADS, WHOLE
from omni_kit.toys.tensors import Tensors

_THETA = 100.0
_SIDE = 40  # rows and columns of a table of positions from which a model cuts what it needs
_OF_TEXT = re.compile(r"txt|text")
_AXES = re.compile(r"axes|rope_dim")
_SINE = re.compile(r"(^|_)sin")
_PLACES = 11
_BATCHED = 3  # dimensions of positions with a batch


def ids(argument: Argument, sizes: Sizes) -> Iterator[Option]:
    """Yield a row of positions for each patch or word, with and without a batch; then positions in a sequence."""
    place = _word_ids if _OF_TEXT.search(argument.name) else _patch_ids
    yield from _rows(place, sizes, argument.rank == _BATCHED)
    yield from indices(argument, sizes)


def _rows(place: Fill, sizes: Sizes, batched: bool = False) -> Iterator[Option]:
    """Yield rows of as many axes as rope has, or of any number; those with a batch first where one is expected."""
    for count in dict.fromkeys((*map(len, _axes(sizes)), 3, 4, 2, 1)):
        both = [option(place, count), option(_batched(place), count)]
        yield from reversed(both) if batched else both
        yield option(_batched(_turned_round(place)), count)


def _axes(sizes: Sizes) -> list[Sequence[int]]:
    """Return the widths of the axes of rope, of each argument that says them."""
    return [value for key, value in sizes.config.items() if _AXES.search(key) and isinstance(value, (list, tuple))]


def _all_ids(sizes: Sizes, axes: tuple[int, ...]) -> torch.Tensor:
    """[words + patches, axes]: those of the words, then those of the patches."""
    return torch.cat([_word_ids(sizes, axes), _patch_ids(sizes, axes)])


def _turned_round(fill: Fill) -> Fill:
    """[axes, places]."""
    return lambda sizes, shape: fill(sizes, shape).mT


def _batched(fill: Fill) -> Fill:
    return lambda sizes, shape: fill(sizes, shape)[None]


def _patch_ids(sizes: Sizes, axes: tuple[int, ...]) -> torch.Tensor:
    """[patches, axes]: the last axes of picture, frame, row and column."""
    spans = [torch.arange(size) for size in (*[1] * axes[0], *sizes.grid)[-axes[0] :]]
    return torch.stack(torch.meshgrid(*spans, indexing="ij"), dim=-1).reshape(-1, axes[0]).float()


def _word_ids(sizes: Sizes, axes: tuple[int, ...]) -> torch.Tensor:
    """[words, axes]: which word it is, on the first axis and the last, of which a model may turn either."""
    found = torch.zeros(sizes.text("text"), *axes)
    found[:, 0] = found[:, -1] = torch.arange(len(found))
    return found


def indices(argument: Argument, sizes: Sizes) -> Iterator[Option]:
    """Positions of frames, of patches, of words, of all in a row; then one row for each axis of the grid."""
    text = words(argument.name)
    # Parts of one sequence, each with its own indices, stand at different places.
    first = sum(map(ord, argument.name)) % _PLACES if argument.name.startswith("indices") else 0
    spans: tuple[Dim, ...] = (frames, text, patches, plus(text, 1, patches), plus(text, patches), 1)
    for span in spans:
        yield option(_count(first), 1, span)
        yield option(_count(first), span)
    yield from _rows(_all_ids, sizes)
    yield several(*(option(_count(0), _along(axis), where=f"({axis})") for axis in range(3)))


def _count(first: int) -> Fill:
    return lambda sizes, shape: first + torch.arange(shape[-1]).reshape(shape)


def _along(axis: int) -> Dim:
    return lambda sizes: sizes.grid[axis]


def rope(argument: Argument, sizes: Sizes) -> Iterator[Option]:
    """Cosines and sines of positions, for a head or a part of it; then complex ones, in a row or as a table, or as a
    list with a table for each axis.
    """
    spans: tuple[Dim, ...] = (patches, plus(patches, words("text")), plus(patches, 1))
    widths = _turned(sizes)
    for span, width in product(spans, widths):
        yield _cos_sin(span, width)
    for width in widths:
        yield option(_table, _SIDE, _SIDE, width)
    for span, width in product(spans, widths):
        yield option(_complex, span, width)
    for axes in _axes(sizes):
        yield several(*(option(_complex, _SIDE, width, where=f"[{at}]") for at, width in enumerate(axes)))


def rope_part(argument: Argument, sizes: Sizes) -> Iterator[Option]:
    """Cosines, or sines, of positions, where each is an argument of its own."""
    part = torch.sin if _SINE.search(argument.name) else torch.cos
    spans: tuple[Dim, ...] = (patches, plus(patches, words("text")), plus(patches, 1))
    for span, width in product(spans, _turned(sizes)):
        yield option(lambda sizes, shape: part(_angles(*shape).repeat_interleave(2, dim=-1)), span, width)


def _turned(sizes: Sizes) -> list[int]:
    """Return possible widths of the rotated part: a head, half of one, or all heads together."""
    heads = next((value for key, value in sizes.config.items() if IS_HEADS.search(key) and value), 1)
    whole = next((value for key, value in sizes.config.items() if key in WHOLE), 0)
    head = next((value for key, value in sizes.config.items() if "head_dim" in key and isinstance(value, int)), 0)
    parts = [part for width in (head, whole // heads) if width for part in (width, width // 2)]
    return [*parts, head * heads] if head else parts


def _angles(length: int, width: int) -> torch.Tensor:
    return torch.outer(torch.arange(length).float(), _THETA ** -torch.linspace(0, 1, width // 2))


def _cos_sin(span: Dim, width: int) -> Option:
    def make(sizes: Sizes) -> Tensors:
        angles = _angles(span if isinstance(span, int) else span(sizes), width).repeat_interleave(2, dim=-1)
        return {"(0)": angles.cos(), "(1)": angles.sin()}

    return make


def _complex(sizes: Sizes, shape: tuple[int, ...]) -> torch.Tensor:
    angles = _angles(*shape[-2:])
    return torch.polar(torch.ones_like(angles), angles)


def _table(sizes: Sizes, shape: tuple[int, ...]) -> torch.Tensor:
    """[rows, columns, width / 2]: the first half of the pairs turns with the row, the second with the column."""
    turned = _complex(sizes, shape[1:])
    half = turned.shape[-1] // 2
    by_row = turned[:, None, :half].expand(-1, shape[1], -1)
    return torch.cat([by_row, turned[None, :, half:].expand(shape[0], -1, -1)], dim=-1)
