"""Possible values of a forward's argument; a trial chooses one."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import torch

from omni_kit.toys.batches.denoiser.sizes import Sizes
from omni_kit.toys.tensors import Tensors

# Makes an argument of a sample: tensors under what comes after the argument's name ("" for the argument itself).
Option = Callable[[Sizes], Tensors]
Dim = int | Callable[[Sizes], int]
Fill = Callable[[Sizes, tuple[int, ...]], torch.Tensor]


_RESIDUALS = 64


@dataclass(frozen=True)
class Argument:
    """An argument of a forward, or an item of one that is a mapping.

    Attributes:
        name: of an item with its key, as samples have it: `cond{text}`.
        annotation: as written.
        required: it has no default.
        sigmas: times are given as parts of one, not of a thousand.
        rank: how many dimensions it has, as documented; None if that is not said.
        exact: the code takes no other number of dimensions.
        lengths: of these dimensions those that the documentation has as a number: 2 of `(B, 2, N)`, by their places.
        along: the places of dimensions that the documentation calls as one of the latents'.
        picked: the number of its items that forward picks by literal indices, such as `texts[0]` and `texts[-1]`.
    """

    name: str
    annotation: str
    required: bool
    sigmas: bool
    rank: int | None = None
    lengths: Mapping[int, int] = field(default_factory=dict, hash=False)
    picked: int = 0
    along: frozenset[int] = frozenset()
    exact: bool = False

    @property
    def own_name(self) -> str:
        """The name; of an item of a mapping its key: `text` of `cond{text}`."""
        return self.name.rstrip("}").rpartition("{")[2]

    @property
    def is_whole(self) -> bool:
        """Return whether it is a tensor of whole numbers, as its annotation says: `torch.LongTensor`, or `int["b
        n"]`.
        """
        return self.annotation.startswith("int[") or "LongTensor" in self.annotation

    @property
    def is_list(self) -> bool:
        """Return whether it is a list, or may be one."""
        return "list" in self.annotation.lower()


# What a role offers for an argument, the likeliest first; None leaves it out.
Role = Callable[[Argument, Sizes], Iterator[Option | None]]


def option(fill: Fill, *dims: Dim, where: str = "") -> Option:
    """Return a tensor of these dimensions, each a number or a size of the sample."""

    def make(sizes: Sizes) -> Tensors:
        return {where: fill(sizes, tuple(dim if isinstance(dim, int) else dim(sizes) for dim in dims))}

    return make


@dataclass(frozen=True)
class LikeLatents:
    """Makes numbers in the shape of the noisy latents.

    Attributes:
        name: of the argument.
    """

    name: str

    def __call__(self, sizes: Sizes) -> Tensors:
        """See `Option`."""
        return {"": sizes.values(self.name, sizes.noisy)}


@dataclass(frozen=True)
class SeveralLikeLatents:
    """Makes several of the shape of the noisy latents, along an axis behind that of samples.

    Attributes:
        name: of the argument.
        count: how many.
    """

    name: str
    count: int

    def __call__(self, sizes: Sizes) -> Tensors:
        """See `Option`."""
        return {"": sizes.values(self.name, (sizes.noisy[0], self.count, *sizes.noisy[1:]))}


def residuals(name: str) -> Option:
    """Return a list of numbers that are added to what the layers of a model compute, more than there are layers."""
    return lambda sizes: {f"[{at}]": sizes.values(f"{name}[{at}]", (1,)) for at in range(_RESIDUALS)}


def several(*options: Option) -> Option:
    """Return options that make one argument together."""

    def make(sizes: Sizes) -> Tensors:
        return {where: tensor for one in options for where, tensor in one(sizes).items()}

    return make


def values(name: str) -> Fill:
    """Return numbers of which no two are alike."""
    return lambda sizes, shape: sizes.values(name, shape)


def words(name: str) -> Dim:
    """Return the length of the argument's text."""
    return lambda sizes: sizes.text(name)


def plus(*dims: Dim) -> Dim:
    """Return the sum of several dimensions."""
    return lambda sizes: sum(dim if isinstance(dim, int) else dim(sizes) for dim in dims)


def patches(sizes: Sizes) -> int:
    """Return the number of patches of the latents."""
    return sizes.tokens


def frames(sizes: Sizes) -> int:
    """Return the number of patches of the latents in time."""
    return sizes.grid[0]


def latent(axis: int, times: int = 1, more: int = 0) -> Dim:
    """Return the length of an axis of the latents: 0 frames, 1 rows, 2 columns."""
    return lambda sizes: times * sizes.latents[axis] + more


LATENTS = (latent(0), latent(1), latent(2))
PICTURE = LATENTS[1:]
