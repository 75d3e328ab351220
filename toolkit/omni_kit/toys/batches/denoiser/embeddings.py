"""Embeddings: of texts, of pictures, of a whole condition; and of what widths they may be."""

import re
from collections.abc import Iterator, Sequence
from itertools import product

import torch

from omni_kit.toys.batches.denoiser.argument_names import spelled
from omni_kit.toys.batches.denoiser.masks import masked
from omni_kit.toys.batches.denoiser.options import (
    LATENTS,
    PICTURE,
    Argument,
    LikeLatents,
    Option,
    frames,
    latent,
    option,
    patches,
    several,
    values,
    words,
)
from omni_kit.toys.batches.denoiser.sizes import Sizes

_POOLED = re.compile(r"pool|global|proj_embedding|style|timestep_cond")
_WORDS = re.compile(r"text|txt|prompt|caption|encoder_hidden_states")
_WIDE = re.compile(r"(dims?|channels|size|width|features)$(?<!img_size)(?<!image_size)(?<!input_size)")
_FEW_WIDTHS = 4
_FEW_THINGS = 2
_LISTS = ("caption_channels",)  # widths of several texts


def embedding(argument: Argument, sizes: Sizes) -> Iterator[Option]:
    """Yield a text [1, words, width], a vector [1, width], one of either for each block, one for each place, or lists
    of them.
    """
    fill, text, widths = values(argument.name), words(argument.name), near(argument.name, sizes)
    vectors = [option(fill, 1, width) for width in widths]
    if argument.picked > 1:
        yield from _of_several_encoders(argument, widths, sizes)
    lists = [*_lists(argument.name, widths, sizes)]
    if argument.is_list:
        yield from lists
    if _POOLED.search(argument.name) or argument.rank == 2:
        yield from vectors
    yield from (option(fill, 1, text, width) for width in widths)
    yield from (option(fill, text, width) for width in widths if _WORDS.search(argument.name))  # of the only sample
    yield from vectors
    yield from (option(fill, 1, patches, width) for width in widths)  # one for each patch
    yield from (option(fill, 1, frames, width) for width in widths)
    yield from (option(fill, 1, 1, text, width) for width in widths)
    yield from (option(fill, sizes.blocks, 1, text, width) for width in widths if sizes.blocks)
    layers = (value for key, value in sizes.config.items() if key.endswith("text_layers") and isinstance(value, int))
    yield from (option(fill, 1, text, count, width) for count in layers for width in widths)
    yield from (option(fill, 1, 2, text, width) for width in widths)
    yield from (option(fill, 1, 1, width) for width in widths)
    yield from (option(fill, 1, width, place) for place in (patches, latent(2)) for width in widths)  # as sounds are
    yield from lists
    yield LikeLatents(argument.name)
    yield from (option(fill, 1, width, *size) for size in (PICTURE, LATENTS) for width in widths)
    yield from (option(one, 1, text) for one in (numbers, few_numbers))  # the model has an embedding of its own
    yield option(fill, 1)  # one number, as a second time is


def _of_several_encoders(argument: Argument, widths: Sequence[int], sizes: Sizes) -> Iterator[Option]:
    """Yield a list of texts, each as wide as its encoder; of the last one there may be one for each block."""
    name, text = argument.name, words(argument.name)
    for chosen in product(widths[:_FEW_WIDTHS], repeat=argument.picked):
        texts = [option(values(f"{name} {at}"), 1, text, width, where=f"[{at}]") for at, width in enumerate(chosen)]
        yield several(*texts)
        if sizes.blocks:
            where = f"[{argument.picked - 1}]"
            yield several(*texts[:-1], option(values(f"{name} blocks"), sizes.blocks, 1, text, chosen[-1], where=where))


def numbers(sizes: Sizes, shape: tuple[int, ...]) -> torch.Tensor:
    """Return numbers of words, from one on."""
    return 1 + torch.arange(shape[-1])[None]


def few_numbers(sizes: Sizes, shape: tuple[int, ...]) -> torch.Tensor:
    """Return numbers of things of which there are few: 0 and 1, in turn."""
    return numbers(sizes, shape) % _FEW_THINGS


def _lists(name: str, widths: Sequence[int], sizes: Sizes) -> Iterator[Option]:
    """Yield the texts of a batch of one, without its batch or with it; or one text for each block."""
    for width in widths:
        yield option(values(name), words(name), width, where="[0]")
    for width in widths:
        yield option(values(name), 1, words(name), width, where="[0]")
    for width in widths if sizes.blocks else ():
        texts = (option(values(f"{name} {at}"), 1, words(name), width, where=f"[{at}]") for at in range(sizes.blocks))
        yield several(*texts)


def texts_and_masks(argument: Argument, sizes: Sizes) -> Iterator[Option]:
    """Yield two texts of different lengths, each with its mask."""
    for width in near(argument.name, sizes):
        yield several(
            *(
                several(
                    option(values(f"text{number}"), 1, words(number), width, where=f"[{at}](0)"),
                    option(masked(), 1, words(number), where=f"[{at}](1)"),
                )
                for at, number in enumerate(("", "_2"))
            )
        )


def near(name: str, sizes: Sizes) -> list[int]:
    """Widths that an argument may have: of the constructor's arguments that are called like it, then the layers'."""
    meant = spelled(name)
    ranked = sorted(_named_widths(sizes), key=lambda item: (-len(meant & spelled(item[0])), not _WIDE.search(item[0])))
    close = [width for key, width in ranked if meant & spelled(key) and width > 2]
    return list(dict.fromkeys([*close, *sizes.widths]))


def _named_widths(sizes: Sizes) -> Iterator[tuple[str, int]]:
    for key, value in sizes.config.items():
        if isinstance(value, int) and not isinstance(value, bool):
            yield key, value
        elif key in _LISTS and isinstance(value, (list, tuple)):
            yield from ((key, width) for width in value)
