"""The forms in which classes take sounds: spectrograms, with a mask of their frames where there is one."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from omni_kit.toys.tensors import Tensors
from omni_kit.toys.weights import shuffled_ramp
from omni_kit.upstream.transformers.configs import BINS, HEARING, WHOLE

_FRAMES = (24, 20, 32)  # no two sounds are alike
_EIGHTS = (24, 16, 32)  # for towers that join as many frames, or fewer
_USUAL_BINS = (128, 80)  # where the config does not say


def sounds(config: Any, names: Sequence[str]) -> Iterator["Sound"]:
    """Yield the spectrograms that a config and the arguments of `get_audio_features` allow, the likeliest first.

    Args:
        names: the arguments, that of the spectrogram first.

    Yields:
        What makes the n-th sound: a tensor [1, frames, bins] or [1, bins, frames], and its mask [1, frames].
    """
    hearing = next((one for key in HEARING if (one := getattr(config, key, None))), config)
    mask = next((name for name in names[1:] if name.endswith("_mask")), None)
    known = [int(value) for name in BINS if isinstance(value := getattr(hearing, name, None), int)]
    whole = getattr(hearing, WHOLE, None)
    window = getattr(hearing, "n_window", None)
    windows = [(2 * window, 4 * window)] if isinstance(window, int) else []
    for lengths in (_FRAMES, _EIGHTS, *windows, *([(2 * whole,)] if isinstance(whole, int) else [])):
        for bins in dict.fromkeys((*known, *_USUAL_BINS)):
            for frames_first in (True, False):
                yield Sound(names[0], mask, lengths, bins, frames_first)


@dataclass(frozen=True)
class Sound:
    """Maker of sounds of one form.

    Attributes:
        name: of the spectrogram; `mask`, of the mask of its frames, if there is one.
        lengths: in frames, of one sound after the other.
    """

    name: str
    mask: str | None
    lengths: Sequence[int]
    bins: int
    frames_first: bool

    def __call__(self, number: int) -> Tensors:
        """Return the n-th sound."""
        frames = self.lengths[number % len(self.lengths)]
        shape = (1, frames, self.bins) if self.frames_first else (1, self.bins, frames)
        found = {self.name: shuffled_ramp(f"{self.name} {number}", shape)}
        return found | ({self.mask: torch.ones(1, frames, dtype=torch.bool)} if self.mask is not None else {})
