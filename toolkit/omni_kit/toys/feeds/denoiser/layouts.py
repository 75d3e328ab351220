"""How noisy latents may be laid out."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from omni_kit.toys.feeds.denoiser.arguments import SHAPES
from omni_kit.toys.feeds.denoiser.roles import Argument
from omni_kit.toys.feeds.denoiser.sizes import PICTURES, Sizes, is_film
from omni_kit.toys.tensors import Tensors

import math

_CHANNELS = ("in_channels", "in_visual_dim", "input_dims", "embedding_dim", "latent_channels")
_PACKED = {"img_ids", "num_frames", "height", "latent_ids"}


@dataclass(frozen=True)
class Layout:
    """One way to lay latents out.

    Attributes:
        axes: what the axes are: 1, c(hannels), f(rames), h (rows), w (columns), n (patches).
        film: there are frames.
        inside: "[0]" where the latents are the only item of a list.
    """

    axes: str
    film: bool
    channels: int
    inside: str = ""

    def __call__(self, sizes: Sizes) -> Tensors:
        """The latents of a sample."""
        frames, rows, columns = sizes.latents
        known = {"1": 1, "c": self.channels, "f": frames, "h": rows, "w": columns, "n": sizes.tokens, "p": sum(math.prod(size) for size in PICTURES[sizes.index])}
        return {self.inside: sizes.values("latents", [known[axis] for axis in self.axes])}


def layouts(argument: Argument, sizes: Sizes, names: Sequence[str]) -> list[Layout]:
    """How the latents of a model may be laid out, the likeliest first."""
    film = is_film(sizes.config)
    channels = [sizes.config[key] for key in _CHANNELS if isinstance(sizes.config.get(key), int)]
    channels = list(dict.fromkeys([*channels, *sizes.widths[:8]]))
    ways: list[tuple[str, bool, str]] = []
    if SHAPES in names:
        ways.append(("1pc", False, ""))
    if "list" in argument.annotation.lower():
        ways.append(("cfhw", film, "[0]"))
    if _PACKED & set(names):
        ways.append(("1nc", film or "num_frames" in names, ""))
    films = [("1cfhw", True, ""), ("1fchw", True, "")]
    pictures = [("1chw", False, "")]
    ways += [*films, *pictures] if film else [*pictures, *films]
    ways += [("1nc", False, ""), ("fchw", True, ""), ("1cn", False, ""), ("1c", False, ""), ("cfhw", True, "[0]"), ("cfhw", False, "[0]"), ("chw", False, "[0]")]
    return [Layout(axes, way_film, width, inside) for width in channels for axes, way_film, inside in ways]
