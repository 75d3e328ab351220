"""The forms in which classes take sounds: spectrograms, with a mask of their frames where there is one."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from omni_kit.toys.tensors import Tensors
from omni_kit.toys.weights import shuffled_ramp
from omni_kit.upstream.transformers.configs import BINS, HEARING, WHOLE

_FRAMES = (24, 20, 32)  # no two sounds are alike
_USUAL_BINS = (128, 80)  # where the config does not say


def sounds(config: Any, names: Sequence[str]) -> Iterator[Callable[[int], Tensors]]:
    """The spectrograms that a config and the arguments of `get_audio_features` allow, the likeliest first.

    Args:
        names: the arguments, that of the spectrogram first.

    Yields:
        What makes the n-th sound: a tensor [1, frames, bins] or [1, bins, frames], and its mask [1, frames].
    """
    hearing = next((one for key in HEARING if (one := getattr(config, key, None))), config)
    mask = next((name for name in names[1:] if name.endswith("_mask")), None)
    known = [int(value) for name in BINS if isinstance(value := getattr(hearing, name, None), int)]
    whole = getattr(hearing, WHOLE, None)
    for lengths in (_FRAMES, *([(2 * whole,)] if isinstance(whole, int) else [])):
        for bins in dict.fromkeys((*known, *_USUAL_BINS)):
            for frames_first in (True, False):
                yield _Maker(names[0], mask, lengths, bins, frames_first)


class _Maker:
    """Makes sounds of one form."""

    def __init__(self, name: str, mask: str | None, lengths: Sequence[int], bins: int, frames_first: bool) -> None:
        self._name, self._mask, self._lengths = name, mask, lengths
        self._bins, self._frames_first = bins, frames_first

    def __call__(self, number: int) -> Tensors:
        frames = self._lengths[number % len(self._lengths)]
        shape = (1, frames, self._bins) if self._frames_first else (1, self._bins, frames)
        found = {self._name: shuffled_ramp(f"{self._name} {number}", shape)}
        return found | ({self._mask: torch.ones(1, frames, dtype=torch.bool)} if self._mask is not None else {})
