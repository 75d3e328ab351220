"""Single numbers: times, strengths, classes, sizes."""

import re
from collections.abc import Callable, Iterator

import torch

from omni_kit.toys.batches.denoiser.embeddings import embedding, few_numbers, near, numbers
from omni_kit.toys.batches.denoiser.image_conditions import latents
from omni_kit.toys.batches.denoiser.options import Argument, Dim, Fill, Option, frames, option, patches, values, words
from omni_kit.toys.batches.denoiser.sizes import Sizes
from omni_kit.toys.tensors import Tensors

# Of a thousand steps. Exact in bfloat16 as they are and as sigmas, so that what is lost there is the model's.
_TIMESTEPS = (250, 812)
_FEW_TIMESTEPS = (3, 7)  # of tables with a row for each step
_SIGMAS = (0.25, 0.8125)
_GUIDANCE = (3.5, 5.0)
_FPS = (30, 12)  # none is the usual 24, which is what many models take without it
_CLASSES = re.compile(r"(^|_)(num|n)_?(class(es)?|labels?)($|_)|class_(dropout|embed)")
_PIXELS = 8.0  # for each patch


def time(argument: Argument, sizes: Sizes) -> Iterator[Option]:
    """Yield one time for the sample, for each frame, or for each patch; as a number without dimensions at last."""
    whole = _of(_SIGMAS if argument.sigmas else _TIMESTEPS)
    yield option(whole, 1)
    yield option(_of(tuple(map(float, _TIMESTEPS))), 1)
    yield option(whole, frames)
    yield option(whole, 1, frames)
    yield option(whole, 1, patches)
    yield option(whole)
    yield option(_of(_FEW_TIMESTEPS), 1)
    if not argument.sigmas:  # a level of which code takes the logarithm of what is left to 1
        yield option(_of(_SIGMAS), 1)


def step(argument: Argument, sizes: Sizes) -> Iterator[Option]:
    """Yield what a time may be, for a tensor that is called a step or may be a number."""
    yield from time(argument, sizes)


def guidance(argument: Argument, sizes: Sizes) -> Iterator[Option]:
    """Return the guidance scale."""
    yield option(_of(_GUIDANCE), 1)


def label(argument: Argument, sizes: Sizes) -> Iterator[Option]:
    """Yield a class; the only one where there is one; or its embedding."""
    yield option(_of((0, 1)), 1)
    yield option(_of((0, 0)), 1)
    yield from (option(values(argument.name), 1, width) for width in near(argument.name, sizes))


def identifier(argument: Argument, sizes: Sizes) -> Iterator[Option]:
    """Yield a number of one of few things; or what an embedding may be."""
    yield from label(argument, sizes)
    yield from embedding(argument, sizes)


def label_or_text(argument: Argument, sizes: Sizes) -> Iterator[Option]:
    """Return a class label, or an embedding, the one that the config mentions first."""
    texts = [*embedding(argument, sizes), *latents(argument, sizes)]
    labels = list(label(argument, sizes))
    yield from [*labels, *texts] if any(map(_CLASSES.search, sizes.config)) else [*texts, *labels]


def tokens(argument: Argument, sizes: Sizes) -> Iterator[Option]:
    """Yield numbers of words, one for each place of a text or of the patches."""
    for fill in (numbers, few_numbers):
        for span in (words(argument.name), patches):
            yield option(fill, 1, span)


def pair(argument: Argument, sizes: Sizes) -> Iterator[Option]:
    """Yield rows and columns of pixels; or three such pairs. Each argument has its own."""
    salt = float(sum(map(ord, argument.name)) % 17)

    def pairs(sizes: Sizes, shape: tuple[int, ...]) -> torch.Tensor:
        rows_columns = torch.tensor([[_PIXELS * size + salt for size in sizes.grid[1:]]])
        return torch.cat([rows_columns + step for step in range(shape[-1] // 2)], dim=-1)

    yield option(pairs, 1, 2)
    yield option(pairs, 1, 6)
    yield option(pairs, 1, 1, 2)


def sides(argument: Argument, sizes: Sizes) -> Iterator[Option]:
    """Yield rows and columns of patches, or of the latents: for each picture of a sample, or for the only one."""
    for made in (lambda sizes: sizes.grid[1:], lambda sizes: sizes.latents[1:]):
        for shape in ((1, 1, 2), (1, 2), (2,)):
            yield _reshaped(made, shape)


def _reshaped(made: Callable[[Sizes], tuple[int, int]], shape: tuple[int, ...]) -> Option:
    return lambda sizes: {"": torch.tensor(made(sizes)).reshape(shape)}


def number(argument: Argument, sizes: Sizes) -> Iterator[Option]:
    """Yield the length that the name says, in patches or in elements of the latents; or in pixels, one a sample."""
    axis = 0 if "frame" in argument.name else 1 if "height" in argument.name else 2
    if "audio" in argument.name:
        yield _plain(words(argument.name))
    yield _plain(lambda sizes: sizes.grid[axis])
    yield _plain(lambda sizes: sizes.latents[axis])
    yield option(lambda sizes, shape: torch.full(shape, _PIXELS * sizes.latents[axis]), 1)


def length(argument: Argument, sizes: Sizes) -> Iterator[Option]:
    """Return the minimum length of the sequence of patches, or of patches and text."""
    yield _plain(patches)
    yield _plain(lambda sizes: sizes.tokens + sizes.text(argument.name))


def lengths(argument: Argument, sizes: Sizes) -> Iterator[Option]:
    """Return the number of valid words of each text, the last of which is padding; or of patches."""
    yield option(lambda sizes, shape: torch.tensor([sizes.text(argument.name) - 1]))
    yield option(lambda sizes, shape: torch.tensor([sizes.tokens]))


def fps(argument: Argument, sizes: Sizes) -> Iterator[Option]:
    """Frames in a second, as a number or one a sample; or which of a few such rates."""
    yield _plain(lambda sizes: _FPS[sizes.index])
    yield option(_of(_FPS), 1)
    yield option(_of((0, 1)), 1)


def picture_sizes(argument: Argument, sizes: Sizes) -> Iterator[Option]:
    """Frames, rows and columns of each picture of a row of patches."""
    yield option(lambda sizes, shape: torch.tensor([sizes.pictures]))


def added(argument: Argument, sizes: Sizes) -> Iterator[Option | None]:
    """Yield sizes of a picture next to its time, where a model takes them."""

    def make(sizes: Sizes) -> Tensors:
        rows, columns = sizes.grid[1:]
        resolution = torch.tensor([[_PIXELS * rows, _PIXELS * columns]])
        return {"{resolution}": resolution, "{aspect_ratio}": torch.tensor([[rows / columns]])}

    yield None
    yield make


def nothing(argument: Argument, sizes: Sizes) -> Iterator[Option | None]:
    """Nothing; or no arguments, for a model that passes them on without looking whether there are any."""
    yield None
    yield option(lambda sizes, shape: torch.zeros(shape), 0, where="{}")


def _of(numbers: tuple[float, ...]) -> Fill:
    """Return the number of a sample, everywhere."""
    return lambda sizes, shape: torch.tensor(numbers[sizes.index]).expand(shape).clone()


def _plain(dim: Dim) -> Option:
    return lambda sizes: {"#": torch.tensor(dim if isinstance(dim, int) else dim(sizes))}
