"""Schedulers of our own that a port may get, each with the settings that a traced sampler shows."""

import importlib
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

from omni_kit.pysource.library import Library
from omni_kit.pysource.source import read_source
from omni_kit.targets.diffusers.scheduling.betas import schedules_of
from omni_kit.upstream.repositories.names import Defined
from omni_kit.upstream.repositories.sampler_step.simulation import LoopTrace

RUNGE_KUTTA, DPM_SOLVER, ANCESTRAL = "RungeKuttaScheduler", "ContinuousDPMSolverScheduler", "AncestralScheduler"
IMPLICIT = "ImplicitScheduler"
_FILES = {RUNGE_KUTTA: "runge_kutta", DPM_SOLVER: "dpm_solver", ANCESTRAL: "ancestral", IMPLICIT: "implicit"}
COUNTS_FROM_ONE = "counts_from_one"
"""Setting of the ancestral scheduler: there is one beta more than steps of training."""
OWN = tuple(_FILES)
"""Schedulers that diffusers lacks."""
_STAGES = {"euler": 1, "midpoint": 2, "heun": 2, "rk4": 4, "rk4_38": 4}
_SHIFT = 50.0  # none is as large
_DIGITS = 5
_FACTORS = (0.25, 250.0)
_DATA = (0.5, 1.0)
_FEWEST = 4
_ROUNDS = 60
_STEEPEST = 40.0

_OF_STEPS: Mapping[str, Sequence[Any]] = {
    "prediction_type": ("epsilon", "sample", "v_prediction"), "clip_sample": (False, True),
    "use_clipped_model_output": (False, True), "eta": (0.0, 1.0),
}  # fmt: skip
_ALIKE, _SCHEDULE, _SCHEDULES = "DPMSolverMultistepScheduler", "beta_schedule", ("linear", "scaled_linear")
_TIMED = 0.05
_SOLVER: Mapping[str, Sequence[Any]] = {
    "prediction_type": ("epsilon", "v_prediction", "sample"), "algorithm_type": ("dpmsolver++", "dpmsolver"),
    "method": ("multistep", "singlestep"), "solver_order": (1, 2, 3), "lower_order_below": (15, 10, 0, 1001),
}  # fmt: skip


def own_scheduler(name: str) -> Any:
    """Return the class."""
    return getattr(importlib.import_module(f"omni_kit.targets.diffusers.scheduling.written.{_FILES[name]}"), name)


@cache
def written(name: str) -> Defined:
    """Return the definition of the class, which a port gets a copy of."""
    place = Path(__file__).resolve().parent / "written"
    file = place / f"{_FILES[name]}.py"
    source = read_source(Library("omni_kit", place), file)
    return Defined(source, name, source.classes[name])


def own_settings(way: LoopTrace, count: int) -> Iterator[tuple[Mapping[str, Any], bool]]:
    """Yield the settings of the scheduler with which it may go a traced way, and whether levels rise there."""
    times = [time for _, time in way.calls]
    for method, stages in _STAGES.items():
        if len(times) == stages * count and min(times) >= 0 and max(times) <= 1:
            rises = times[0] < times[-1]
            levels = [1 - time if rises else time for time in times[::stages]]
            yield from (({"method": method, **ends}, rises) for ends in _even(levels))
    if len(times) == 2 * count - 1 and min(times) >= 0 and max(times) <= 1:
        rises = times[0] < times[-1]
        levels = [1 - time if rises else time for time in times[::2]]
        yield from (({"method": "heun", "euler_last": True, **ends}, rises) for ends in _even(levels))
    methods = {count: "euler", 2 * count - 1: "heun"}
    if len(times) in methods and times[0] > times[-1]:
        for factor in _FACTORS:
            levels = _levels(times, factor)
            if len(levels) == count >= _FEWEST and (rho := _rho(levels)):
                ends = {"sigma_min": _rounded(levels[-1]), "sigma_max": _rounded(levels[0]), "rho": rho}
                for data, clips in product(_DATA, (False, True)):
                    more = {"time_factor": factor, "clip_sample": clips}
                    yield {"method": methods[len(times)], "sigma_data": data, **ends, **more}, False


def implicit_settings(way: LoopTrace, count: int) -> Iterator[Mapping[str, Any]]:
    """Yield the settings with which the implicit scheduler may go a traced way."""
    times = [time for _, time in way.calls]
    for betas in schedules_of("DDIMScheduler", way.tables) if len(times) == count else ():
        scheduler = own_scheduler(IMPLICIT)(**betas)
        scheduler.set_timesteps(count)
        unit = 1 if times[0] > 1 else scheduler.config.num_train_timesteps
        if all(math.isclose(float(one) / unit, time) for one, time in zip(scheduler.timesteps, times, strict=True)):
            for values in product(*_OF_STEPS.values()):
                yield {**betas, **dict(zip(_OF_STEPS, values, strict=True))}


def _even(levels: Sequence[float]) -> Iterator[Mapping[str, float]]:
    """Yield the first and the last level, and the shift, of levels that fall evenly before they are shifted: the last
    one is that after the last step.
    """
    shift = round(_shift(levels), _DIGITS) if len(levels) > 2 else 1.0
    for bent in dict.fromkeys((1.0, shift)):
        even = [one / (bent - (bent - 1) * one) for one in levels]
        last = even[0] + len(even) * (even[1] - even[0]) if len(even) > 1 else 0.0
        found = {"first_level": (even[0], 1.0), "last_level": (last, 0.0), "shift": (bent, 1.0)}
        rounded = ((name, round(value, _DIGITS), usual) for name, (value, usual) in found.items())
        yield {name: value for name, value, usual in rounded if value != usual}


def _shift(levels: Sequence[float]) -> float:
    """Return the factor without which the first three levels fall evenly."""

    def bends(shift: float) -> float:
        first, second, third = (one / (shift - (shift - 1) * one) for one in levels[:3])
        return first - 2 * second + third

    low, high = 1 / _SHIFT, _SHIFT
    for _ in range(_ROUNDS):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if bends(middle) > 0 else (middle, high)
    return low


def solver_settings(way: LoopTrace, count: int) -> Iterator[Mapping[str, Any]]:
    """Yield the settings with which the solver of diffusion ODEs may go a traced way."""
    times, names = [time for _, time in way.calls], [*_SOLVER]
    if len(times) != count or times[0] <= 1:
        return
    for betas in schedules_of(_ALIKE, way.tables):
        plain = {name: _shortest(value) if isinstance(value, float) else value for name, value in betas.items()}
        if plain.get(_SCHEDULE, _SCHEDULES[0]) not in _SCHEDULES:
            continue
        for spacing, offset in product(("time", "logsnr"), (0, 1)):
            timed = {**plain, "spacing": spacing, "steps_offset": offset}
            if _is_timed(timed, count, times):
                for values in product(*_SOLVER.values()):
                    yield {**timed, **dict(zip(names, values, strict=True))}


def _is_timed(config: Mapping[str, Any], count: int, times: Sequence[float]) -> bool:
    scheduler = own_scheduler(DPM_SOLVER)(**config)
    scheduler.set_timesteps(count)
    pairs = zip(scheduler.timesteps.tolist(), times, strict=True)
    return all(math.isclose(one, other, abs_tol=_TIMED) for one, other in pairs)


def _shortest(number: float) -> float:
    """Return a number as somebody wrote it, where a computation in float32 has left traces in its last digits."""
    rounded = (float(f"{number:.{digits}g}") for digits in range(1, 4))
    return next((one for one in rounded if math.isclose(one, number, rel_tol=1e-3)), number)


def _levels(times: Sequence[float], factor: float) -> list[float]:
    """Return the distinct levels that times are the logarithms of; an empty list for other times."""
    try:
        return [math.exp(one / factor) for one in dict.fromkeys(times)]
    except OverflowError:
        return []


def _rho(levels: Sequence[float]) -> float:
    """Return the exponent with which levels fall from the first to the last; 0 if no one shows."""

    def second(rho: float) -> float:
        first, last = levels[0] ** (1 / rho), levels[-1] ** (1 / rho)
        return float((first + (last - first) / (len(levels) - 1)) ** rho)

    if not levels[-1] > 0:
        return 0.0
    low, high = 1.0, _STEEPEST
    for _ in range(_ROUNDS):
        middle = (low + high) / 2
        low, high = (middle, high) if second(middle) > levels[1] else (low, middle)
    found = round(low, 3)
    return found if math.isclose(second(found), levels[1], rel_tol=1e-3) else 0.0


def _rounded(number: float) -> float:
    return float(f"{number:.4g}")
