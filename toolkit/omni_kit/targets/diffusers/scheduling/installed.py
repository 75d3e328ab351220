"""Whether a scheduler that diffusers has goes where the authors' loop goes: both with the same stand-in for a model."""

import inspect
import io
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

from omni_kit.upstream.repositories.stepping.divided import Divided
from omni_kit.upstream.repositories.stepping.worked_out import DRAWN, Way, way_of

FIRST = "FlowMatchEulerDiscreteScheduler"
"""What is asked first, and stays where nothing is known of the loop."""
_TRAINED = 1000
_COUNTS = (4, 7)
_NOISE = 0.8
_CLOSE = 2e-4
# Linear in the latents, and not; one that tells the time, and one that tells only how often it is asked.
_MODELS: tuple[Callable[[float, float], float], ...] = (
    lambda x, t: 0.4 * x - 0.3 * t + 0.2,
    lambda x, t: math.sin(1.7 * x) + 0.5 * t * x,
)


@dataclass(frozen=True)
class Installed:
    """A scheduler that diffusers has.

    Attributes:
        name: the class.
        config: what it is made with.
    """

    name: str
    config: Mapping[str, Any] = field(default_factory=dict)


USUAL = Installed(FIRST)


def is_plain(loop: Divided, settings: Mapping[str, Any]) -> bool | None:
    """Whether a step adds the answer times the change of the level that the model is told; None where not followed."""
    for count in _COUNTS:
        for model in _MODELS:
            way = way_of(loop, count, _NOISE, model, settings)
            if way is None:
                return None
            if not _is_euler(way, count, model):
                return False
    return True


def _is_euler(way: Way, count: int, model: Callable[[float, float], float]) -> bool:
    if len(way.asked) != count or way.begun != 1.0:
        return False
    times = [time for _, time in way.asked]
    x = _NOISE
    for (sample, now), after in zip(way.asked, [*times[1:], 0.0], strict=True):
        if not math.isclose(sample, x, rel_tol=1e-6, abs_tol=1e-9):
            return False
        x += (after - now) * model(x, now)
    return math.isclose(way.ended, x, rel_tol=1e-6, abs_tol=1e-9)


def installed_for(loop: Divided, settings: Mapping[str, Any], shift: float | None) -> Installed | None:
    """The first scheduler that goes there, whatever it is handed; None where none does, or the loop is not followed.

    Args:
        shift: of the authors' levels, where that is all that they are.
    """
    ways = {(count, place): way_of(loop, count, _NOISE, model, settings)
            for count in _COUNTS for place, model in enumerate(_MODELS)}  # fmt: skip
    if not all(way is not None and way.begun == 1.0 for way in ways.values()):
        return None
    told = {key: way for key, way in ways.items() if way is not None}
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):  # what schedulers say that do not fit
        for one in _candidates(shift):
            if all(_goes(one, count, _MODELS[place], way) for (count, place), way in told.items()):
                return one
    return None


def _candidates(shift: float | None) -> Iterator[Installed]:
    import diffusers

    for name in sorted(dir(diffusers.schedulers), key=lambda one: (one != FIRST, one)):
        cls = getattr(diffusers.schedulers, name, None)
        if not inspect.isclass(cls) or not issubclass(cls, diffusers.SchedulerMixin) or cls is diffusers.SchedulerMixin:
            continue
        taken = inspect.signature(cls.__init__).parameters
        yield Installed(name)
        if shift is not None and shift != 1 and "shift" in taken:
            yield Installed(name, {"shift": shift})
        if "use_flow_sigmas" in taken:
            bent = {"flow_shift": shift or 1.0} if "flow_shift" in taken else {}
            yield Installed(name, {"use_flow_sigmas": True, "prediction_type": "flow_prediction", **bent})


def _goes(one: Installed, count: int, model: Callable[[float, float], float], way: Way) -> bool:
    try:
        return _walks(one, count, model, way)
    except Exception:  # another scheduler's own reasons: it wants more than levels and a model
        return False


def _walks(one: Installed, count: int, model: Callable[[float, float], float], way: Way) -> bool:
    import diffusers
    import torch

    cls = getattr(diffusers.schedulers, one.name)
    scheduler = cls(**one.config)
    by_levels = "sigmas" in inspect.signature(scheduler.set_timesteps).parameters
    if by_levels and len(way.levels) in (count, count + 1) and not one.config:
        scheduler.set_timesteps(sigmas=list(way.levels[:count]))
    else:
        scheduler.set_timesteps(count)
    if len(scheduler.timesteps) != len(way.asked) or not _close(
        float(getattr(scheduler, "init_noise_sigma", 1.0)), 1.0
    ):
        return False
    x = torch.full((1, 1, 1, 1), _NOISE)
    with patch(f"{cls.__module__}.randn_tensor", lambda shape, **given: torch.full(tuple(shape), DRAWN), create=True):
        for t, (sample, time) in zip(scheduler.timesteps, way.asked, strict=True):
            if not _close(float(t) / _TRAINED, time) or not _close(float(x), sample):
                return False
            x = scheduler.step(torch.full_like(x, model(sample, time)), t, x, return_dict=False)[0]
    return _close(float(x), way.ended)


def _close(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=_CLOSE, abs_tol=_CLOSE)
