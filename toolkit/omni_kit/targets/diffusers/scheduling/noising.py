"""Noising of clean latents, where the authors' loop shows it: the inverse of their denoising."""

import math
from collections.abc import Mapping
from typing import Any

from omni_kit.upstream.repositories.sampler_step.simulation import trace_of
from omni_kit.upstream.repositories.sampler_step.split_step import Divided

FLOW, EXPLODING = "flow", "variance exploding"
_COUNTS = (4, 7)
_CLEAN, _NOISE = -0.6, 0.8


def noising_of(loop: Divided, settings: Mapping[str, Any]) -> str:
    """FLOW or EXPLODING, or empty.

    A perfect model answers the same all the way from noise to one picture. Where the loop then ends at the picture, the
    latents on the way are what the picture becomes by noising.
    """
    if not loop.levels or loop.random:
        return ""
    if _holds(loop, settings, lambda factor: _NOISE - _CLEAN, lambda level: (1 - level) * _CLEAN + level * _NOISE):
        return FLOW
    if _holds(loop, settings, lambda factor: _CLEAN, lambda level: _CLEAN + level * _NOISE):
        return EXPLODING
    return ""


def _holds(loop: Divided, settings: Mapping[str, Any], answer: Any, noised: Any) -> bool:
    for count in _COUNTS:
        way = trace_of(loop, count, _NOISE, lambda x, t: answer(1.0), settings)
        if (
            way is None
            or len(way.levels) not in (count, count + 1)
            or not math.isclose(way.ended, _CLEAN, abs_tol=1e-6)
        ):
            return False
        passed = [x for x, _ in way.calls]
        wanted = [noised(level) for level in way.levels[:count]]
        if any(all(abs(x - one) > 1e-6 for x in passed) for one in wanted):
            return False
    return True
