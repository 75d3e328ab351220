"""Check whether a scheduler that diffusers has goes where the authors' loop goes: both with the same stand-in for a
model.
"""

import inspect
import io
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field, replace
from itertools import chain, product
from typing import Any

from omni_kit.targets.diffusers.scheduling.betas import (
    TRAINED_BETAS,
    Betas,
    betas_in,
    plainest_first,
    schedulers,
    schedules_of,
    told,
)
from omni_kit.targets.diffusers.scheduling.own_schedulers import (
    ANCESTRAL,
    COUNTS_FROM_ONE,
    DPM_SOLVER,
    IMPLICIT,
    RUNGE_KUTTA,
    implicit_settings,
    own_scheduler,
    own_settings,
    solver_settings,
)
from omni_kit.targets.diffusers.scheduling.settings import TRAINED
from omni_kit.targets.replacing import replaced
from omni_kit.upstream.repositories.sampler_step.simulation import DRAWN, MODELS, NOISE, LoopTrace, trace_of
from omni_kit.upstream.repositories.sampler_step.split_step import Divided
from omni_kit.upstream.repositories.sampling import bent

FIRST = "FlowMatchEulerDiscreteScheduler"
"""Default scheduler, which stays if nothing is known of the loop."""
_TRAINED = 1000
_ALL_STEPS = (("DDPMScheduler", 0), ("DDIMScheduler", 0), (ANCESTRAL, 0), (ANCESTRAL, 1))
"""Schedulers that go all steps of training as authors do: with noise, without, and with noise down to step 1; and how
many betas more than steps there are.
"""
_LEVELS = (0.5, 1.0)
"""Powers of the cumulative product of alphas that models receive instead of the timestep."""
COUNTS = (4, 7)
"""Numbers of steps in which a loop is compared."""
_CLOSE = 2e-4
# What decides which steps are gone, and what becomes of an answer; no values are those that schedulers say they take.
# Of two that agree wherever the loop was followed the first is taken.
_TIMES: Mapping[str, Sequence[Any]] = {"timestep_spacing": (), "steps_offset": (0, 1)}
_STEPS: Mapping[str, Sequence[Any]] = {
    "prediction_type": (), "clip_sample": (), "set_alpha_to_one": (), "final_sigmas_type": (), "algorithm_type": (),
    "variance_type": (), "solver_order": (1, 2, 3),
}  # fmt: skip


@dataclass(frozen=True)
class Installed:
    """A scheduler that diffusers has.

    Attributes:
        name: the class.
        config: what it is made with.
        whole: the model is told its steps as they are, and no parts of one.
        real: and as numbers with a fraction.
        scales: latents are scaled before the first step, or before the model receives them.
        rises: the model gets 1 minus the noise level as its time, and predicts the velocity from noise to data.
        by_count: the authors tell it how many steps there are.
        negated: the scheduler gets the negative of the model's answer.
        level: the model receives the noise level, as this power of the cumulative product of alphas; 0 for timesteps.
        skips: how many of its first steps are left out.
        denoised: of a model that predicts data, the least number by which the velocity to it is divided; else None.
    """

    name: str
    config: Mapping[str, Any] = field(default_factory=dict)
    whole: bool = False
    real: bool = False
    scales: bool = False
    rises: bool = False
    by_count: bool = False
    negated: bool = False
    level: float = 0.0
    skips: int = 0
    denoised: float | None = None

    @property
    def counted(self) -> bool:
        """Return whether it is told how many steps there are, and no levels."""
        return self.by_count or (self.name != FIRST and bool(self.config))

    @property
    def unit(self) -> int:
        """Divisor of the steps before the model receives them."""
        return 1 if self.whole else int(self.config.get("num_train_timesteps", _TRAINED))


USUAL = Installed(FIRST)


def is_plain(loop: Divided, settings: Mapping[str, Any]) -> bool | None:
    """Return whether a step adds the answer times the change of the level that the model is told.

    None if not followed.
    """
    for count in COUNTS:
        for model in MODELS:
            way = trace_of(loop, count, NOISE, model, settings)
            if way is None:
                return None
            if not _is_euler(way, count, model):
                return False
    return True


def _is_euler(way: LoopTrace, count: int, model: Callable[[float, float], float]) -> bool:
    if len(way.calls) != count or way.begun != 1.0:
        return False
    times = [time for _, time in way.calls]
    x = NOISE
    for (sample, now), after in zip(way.calls, [*times[1:], 0.0], strict=True):
        if not math.isclose(sample, x, rel_tol=1e-6, abs_tol=1e-9):
            return False
        x += (after - now) * model(x, now)
    return math.isclose(way.ended, x, rel_tol=1e-6, abs_tol=1e-9)


def shift_along(loop: Divided, settings: Mapping[str, Any]) -> float | None:
    """Return the shift of the levels that a plain loop goes along; None for other levels."""
    found = set()
    for count in COUNTS:
        way = trace_of(loop, count, NOISE, MODELS[0], settings)
        one = bent([*(time for _, time in way.calls), 0.0], count) if way is not None else None
        found.add(None if one is None else round(one, 5))
    return found.pop() if len(found) == 1 else None


def installed_for(loop: Divided, settings: Mapping[str, Any], shift: float | None) -> Installed | None:
    """Return the first scheduler that goes there, whatever it receives; None if none does, or the loop is not followed.

    Args:
        shift: of the authors' levels, where that is all that they are.
    """
    ways = {(count, place): trace_of(loop, count, NOISE, model, settings)
            for count in COUNTS for place, model in enumerate(MODELS)}  # fmt: skip
    if not all(way is not None and way.calls for way in ways.values()):
        return None
    return installed_along({key: way for key, way in ways.items() if way is not None}, shift)


def installed_along(
    known: Mapping[tuple[int, int], LoopTrace], shift: float | None, own: bool = False, solves: bool = False,
    denoised: float | None = None,
) -> Installed | None:  # fmt: skip
    """Return the first scheduler that goes where a loop went with each of `MODELS`, whatever else it receives.

    Args:
        known: by the number of steps, and the place of the model.
        shift: of the levels, where that is all that they are; None for others.
        own: it may be one that diffusers lacks, of which the port gets a copy.
        solves: they go between the steps of training, which none of diffusers' does.
        denoised: see `Installed`; of a loop whose model predicts data.
    """
    first = next(iter(known))[0]
    names = () if solves else plainest_first() if denoised is None else (FIRST,)
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):  # what schedulers say that do not fit
        theirs = _candidates(shift, known[first, 0], first, names)
        more = _own(known[first, 0], first, solves) if own else ()
        for one in (replace(each, denoised=denoised) for each in chain(theirs, more)):
            went = []
            for (count, place), way in known.items():
                went.append(_goes(one, count, MODELS[place], way))
                if went[-1] is None:
                    break
            else:
                return replace(one, real=isinstance(way.calls[0][1], float), scales=any(went))
    return None


def goes_along(one: Installed, known: Mapping[tuple[int, int], LoopTrace]) -> bool:
    """Return whether a scheduler goes where a loop went with each of `MODELS`.

    Args:
        known: by the number of steps, and the place of the model.
    """
    return all(_goes(one, count, MODELS[place], way) is not None for (count, place), way in known.items())


def installed_throughout(
    known: Mapping[tuple[int, int], LoopTrace],
) -> tuple[Installed, dict[int, Betas]] | None:
    """Return the scheduler that goes where a loop went that goes all steps of its training, whatever their number, and
    the betas of each number.
    """
    counts = dict.fromkeys(count for count, _ in known)
    begun = known[next(iter(known))].calls[0][1]
    whole, real = begun > 1, isinstance(begun, float)
    levels = (0.0,) if whole else (0.0, *_LEVELS)
    for (name, more), level in product(_ALL_STEPS, levels):
        betas = {count: betas_in([one for one in known[count, 0].tables if len(one) == count + more])
                 for count in counts}  # fmt: skip
        taken = inspect.signature(scheduler_class(name).__init__).parameters
        for first in next(iter(betas.values())):
            alike = {count: one for count, every in betas.items() if (one := first.among(every)) is not None}
            for chosen in _choices(_STEPS, taken) if len(alike) == len(betas) else ():
                config = {**chosen, COUNTS_FROM_ONE: True} if more else chosen
                own = {count: {**config, TRAINED: count, TRAINED_BETAS: alike[count].numbers} for count in counts}
                went = (_goes(Installed(name, own[count], whole=whole, level=level), count, MODELS[model], way)
                        for (count, model), way in known.items())  # fmt: skip
                if all(each is not None for each in went):
                    given = {key: value for key, value in config.items() if value != taken[key].default}
                    found = Installed(name, given, whole=whole, real=real, level=level)
                    return found, alike
    return None


def _own(way: LoopTrace, count: int, solves: bool) -> Iterator[Installed]:
    """Yield schedulers of our own."""
    for config, up in () if solves else own_settings(way, count):
        yield Installed(RUNGE_KUTTA, config, whole="sigma_data" in config, rises=up)
    name, settings = (DPM_SOLVER, solver_settings) if solves else (IMPLICIT, implicit_settings)
    taken = inspect.signature(own_scheduler(name).__init__).parameters
    for config in settings(way, count):
        own = {key: value for key, value in config.items() if value != taken[key].default}
        yield Installed(name, own, whole=way.calls[0][1] > 1)


def _candidates(shift: float | None, way: LoopTrace, count: int, names: Sequence[str]) -> Iterator[Installed]:
    for name in sorted(names, key=lambda one: one != FIRST):
        taken = inspect.signature(schedulers()[name].__init__).parameters
        whole = way.calls[0][1] > 1
        if whole and name == FIRST and not (way.levels and way.levels[0] <= 1):
            continue  # its levels are given in parts of one
        yield Installed(name, whole=whole)
        if name == FIRST and way.calls[0][1] < way.calls[-1][1]:
            yield Installed(name, rises=True)
        if shift is not None and shift != 1 and "shift" in taken:
            yield Installed(name, {"shift": shift}, whole=whole)
        if "use_flow_sigmas" in taken:
            shifted = {"flow_shift": shift or 1.0} if "flow_shift" in taken else {}
            flow = {"use_flow_sigmas": True, "prediction_type": "flow_prediction", **shifted}
            yield Installed(name, flow, whole=whole)
        yield from configured(name, way, whole, count)


def configured(name: str, way: LoopTrace, whole: bool, count: int = COUNTS[0]) -> Iterator[Installed]:
    """Yield a scheduler with the authors' own schedule of betas, in all that it may make of it; as long as
    steps agree.
    """
    taken = inspect.signature(schedulers()[name].__init__).parameters
    for betas in schedules_of(name, way.tables):
        for times in _choices(_TIMES, taken):
            one = Installed(name, {**betas, **times}, whole=whole)
            if _is_timed(one, way, count):
                for more in _choices(_STEPS, taken):
                    config = {**betas, **times, **more}
                    own = {key: value for key, value in config.items() if value != taken[key].default}
                    yield Installed(name, own, whole=whole)


def _choices(wanted: Mapping[str, Sequence[Any]], taken: Mapping[str, inspect.Parameter]) -> Iterator[dict[str, Any]]:
    """Yield every choice of settings that a scheduler takes."""
    known = {
        name: dict.fromkeys(values or ((taken[name].default,) if told(name) != (False, True) else ()) + told(name))
        for name, values in wanted.items()
        if name in taken
    }
    for chosen in product(*known.values()):
        yield dict(zip(known, chosen, strict=True))


def _is_timed(one: Installed, way: LoopTrace, count: int) -> bool:
    """Return whether a scheduler goes along the steps that the authors' model is told."""
    try:
        scheduler = schedulers()[one.name](**one.config)
        scheduler.set_timesteps(count)
    except Exception:  # another scheduler's own reasons
        return False
    times = [float(t) / one.unit for t in scheduler.timesteps]
    return len(times) == len(way.calls) and all(
        _close(own, time) for own, (_, time) in zip(times, way.calls, strict=True)
    )


def _goes(one: Installed, count: int, model: Callable[[float, float], float], way: LoopTrace) -> bool | None:
    """Return whether it goes where the authors go, and then whether latents are scaled on the way.

    None for elsewhere.
    """
    try:
        return _walks(one, count, model, way)
    except Exception:  # another scheduler's own reasons: it wants more than levels and a model
        return None


def scheduler_class(name: str) -> Any:
    """Return the class of diffusers, or of our own."""
    return schedulers().get(name) or own_scheduler(name)


def _walks(one: Installed, count: int, model: Callable[[float, float], float], way: LoopTrace) -> bool | None:
    import torch

    scheduler = scheduler_class(one.name)(**one.config)
    if TRAINED_BETAS in one.config:  # single precision is less than the comparison needs where betas are small
        kept = torch.cumprod(1 - torch.tensor(one.config[TRAINED_BETAS], dtype=torch.float64), 0)
        scheduler.alphas_cumprod = kept
    by_levels = "sigmas" in inspect.signature(scheduler.set_timesteps).parameters
    if one.rises and by_levels and not one.by_count:
        scheduler.set_timesteps(sigmas=[1 - time for _, time in way.calls])
    elif by_levels and len(way.levels) in (count, count + 1) and not (one.config or one.by_count):
        scheduler.set_timesteps(sigmas=list(way.levels[:count]))
    else:
        scheduler.set_timesteps(count)
    return walks(scheduler, one, model, way)


def walks(scheduler: Any, one: Installed, model: Callable[[float, float], float], way: LoopTrace) -> bool | None:
    """Return whether a scheduler whose steps are set goes where the authors go, and then whether latents are scaled.

    None for elsewhere.
    """
    import torch

    begun = float(getattr(scheduler, "init_noise_sigma", 1.0))
    if len(scheduler.timesteps) < len(way.calls) or not (way.begun is None or _close(begun, way.begun)):
        return None
    scaled = not _close(begun, 1.0)
    x = torch.full((1, 1, 1, 1), NOISE * begun, dtype=torch.float64 if TRAINED_BETAS in one.config else None)
    home = sys.modules[type(scheduler).__module__]
    with replaced(home, "randn_tensor", lambda shape, **given: torch.full(tuple(shape), DRAWN)):
        place = -1
        for t in scheduler.timesteps[one.skips :]:
            handed = float(scheduler.scale_model_input(x, t) if hasattr(scheduler, "scale_model_input") else x)
            told = 1 - float(t) / one.unit if one.rises else float(t) / one.unit
            told = float(scheduler.alphas_cumprod[int(t)]) ** one.level if one.level else told
            near = (
                way.calls[at] for at in (place + 1, place) if 0 <= at < len(way.calls)
            )  # a call like the last: once
            sample, time = next(
                (pair for pair in near if _close(handed, pair[0]) and _close(told, pair[1])), (None, None)
            )
            if sample is None or time is None:
                return None
            place += (sample, time) != way.calls[place] or place < 0
            scaled = scaled or not _close(handed, float(x))
            answer = _predicted(one, model(sample, time), sample, time) * (-1 if one.rises or one.negated else 1)
            x = scheduler.step(torch.full_like(x, answer), t, x, return_dict=False)[0]
    return scaled if _close(float(x), way.ended) and place == len(way.calls) - 1 else None


def _predicted(one: Installed, answer: float, sample: float, time: float) -> float:
    """Return what a scheduler is given of a model's answer: the velocity, where the model predicts data."""
    if one.denoised is None:
        return answer
    toward = answer - sample if one.rises else sample - answer
    return toward / max(1 - time if one.rises else time, one.denoised)


def _close(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=_CLOSE, abs_tol=_CLOSE)
