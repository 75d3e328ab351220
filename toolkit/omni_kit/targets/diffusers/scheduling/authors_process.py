"""The scheduler of diffusers that goes where a sampler of the authors' goes: theirs is run, in a process of its own."""

import ast
import importlib.util
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from omni_kit.isolation.requests import run_worker
from omni_kit.isolation.worker import StepError
from omni_kit.targets.diffusers.porting.forward import LATENTS, TIME
from omni_kit.targets.diffusers.scheduling.library_scheduler import COUNTS, FIRST, installed_along
from omni_kit.targets.diffusers.scheduling.settings import TRAINED as SETTING
from omni_kit.upstream.repositories.processes.authors_calls import TRAINED, AuthorsCall, Guidance, authors_calls
from omni_kit.upstream.repositories.processes.process import Process
from omni_kit.upstream.repositories.processes.solver_calls import solver_calls
from omni_kit.upstream.repositories.reference import BETWEEN, Reference
from omni_kit.upstream.repositories.sampler_step.simulation import LoopTrace
from omni_kit.upstream.repositories.sampling import bent

_WORKER = "omni_kit.targets.references.authors_calls"
_SERVER = "omni_kit.targets.references.found_toy"  # imports all that the worker does, and is there already
_TIMEOUT = 120.0
_MOST = 6
_SAID = ("module", "name", "parts", "called", "guided", "draws", "far")
_SOLVER_COUNTS = (4, 7, 9, 10, 14, 15)
"""Numbers of steps of solvers, which end short runs with lower orders."""
_WHOLE = (60, 50)
"""Numbers of steps of training, all of which a sampler goes: enough of them to tell schedules of betas apart."""
_Way = Mapping[str, Any]
_LATENTS = "latents_of({called}, begun.shape)"
_OUTPUTS: Mapping[str, Callable[[_Way], float]] = {
    _LATENTS: lambda way: way["ended"],
    f"{_LATENTS} * 2 - 1": lambda way: way["ended"] * 2 - 1,
}
"""Expressions for latents: what a sampler returns, or pictures from 0 to 1."""
_CLAMPED: Mapping[str, Callable[[_Way], float]] = {
    "unclamped(lambda: {called}, begun.shape)": lambda way: way["unclamped"]
}
"""The expression for latents of a sampler that goes all steps and clamps pictures last of all."""


def process_along(reference: Reference, names: Mapping[str, str]) -> Process | None:
    """Return the sampler of the authors' that a scheduler of diffusers reproduces; None without one, or with several.

    Args:
        names: what the authors call an argument of forward -> what it is called here.
    """
    latents, time = (next((old for old, new in names.items() if new == one), "") for one in (LATENTS, TIME))
    if not (latents and time) or importlib.util.find_spec("torch") is None:
        return None
    calls = [one for one in authors_calls(reference) if not reference.loop or one.is_named(reference.loop)]
    counts = _WHOLE if calls and calls[0].trained else COUNTS
    names_of = (latents, time)
    return _along(reference, calls, names_of, counts) or _along(
        reference, [] if reference.loop else solver_calls(reference), names_of, _SOLVER_COUNTS, solves=True
    )


def _along(
    reference: Reference, calls: Sequence[AuthorsCall], names: tuple[str, str], counts: Sequence[int],
    solves: bool = False,
) -> Process | None:  # fmt: skip
    """Return the sampler among calls that a scheduler reproduces.

    Args:
        names: what the authors call latents and the step.
        counts: numbers of steps to compare.
        solves: these are solvers, of which all must guide in one way.
    """
    latents, time = names
    order = [*dict.fromkeys(name.partition("{")[0] for name in reference.forward)]
    request = {
        "reference": f"{reference.cls.source.path}{BETWEEN}{reference.class_name}", "order": order,
        "latents": latents, "time": time, "values": _values(reference), "axes": [4, 3, 5, 2], "counts": counts,
        "calls": [{name: getattr(one, name) for name in _SAID} for one in calls],
    }  # fmt: skip
    try:
        found = run_worker(f"{_WORKER}:trace", request, timeout=_TIMEOUT, modules=[_SERVER]) if calls else []
    except StepError:
        return None
    pairs = [*zip(calls, found, strict=True)]
    ways_to_guide = {one["guides"] for call, one in pairs if "ways" in one and call.guided}
    if solves and not ways_to_guide <= {Guidance.usual} and ways_to_guide != {Guidance.less}:
        return None
    ran = [(_guiding(_known(call, one["known"]), one["guides"]), one["ways"]) for call, one in pairs
           if "ways" in one and one["guides"] != Guidance.other]  # fmt: skip
    distinct: list[tuple[AuthorsCall, list[dict[str, Any]]]] = []
    for call, ways in ran:  # farther ones may be of another algorithm
        if call.far == ran[0][0].far and all(ways != other for _, other in distinct):
            distinct.append((call, ways))
    asked = f'asked, {order!r}, "{latents}", "{time}", len(begun), {_values(reference)}, model'
    made = [one for call, ways in distinct[:_MOST] for one in _processes(call, ways, asked, solves)]
    same = {(one.scheduler, str(one.config), one.rises, one.whole, one.shift) for one in made}
    return made[0] if len(same) == 1 else None


def _known(call: AuthorsCall, values: Mapping[str, str]) -> AuthorsCall:
    """Return a call with values for arguments that nothing is known of, which a run has shown to have no effect."""
    called = call.called
    for name, value in values.items():
        called = re.sub(rf"\b{re.escape(name)}\b", value, called)
    return replace(call, called=called)


def _guiding(call: AuthorsCall, how: str) -> AuthorsCall:
    """Return a call that guides in a way that a run has shown."""
    return call if how == Guidance.unasked else replace(call, guides=(), less=how == Guidance.less)


def _values(reference: Reference) -> int:
    """Return how many values forward returns."""
    found = reference.cls.method("forward")
    nodes = [one.value for one in ast.walk(found[1]) if isinstance(one, ast.Return)] if found is not None else []
    counts = {len(one.elts) if isinstance(one, ast.Tuple) else 1 for one in nodes}
    return counts.pop() if len(counts) == 1 else 1


def _processes(call: AuthorsCall, ways: list[dict[str, Any]], asked: str, solves: bool) -> Iterator[Process]:
    clamps = call.trained and any(one["unclamped"] != one["ended"] for one in ways)
    for output, made in (_CLAMPED if clamps else _OUTPUTS).items():
        told = {(one["count"], one["model"]): _trace(one, made(one)) for one in ways}
        shift = shift_of(told)
        found = installed_along(told, shift, whole=bool(call.trained), own=True, solves=solves)
        if found is not None and (found.name != FIRST or shift is not None):
            config = dict(found.config)
            if call.trained:
                usual = call.trained == TRAINED
                config = {name: value for name, value in config.items() if name != SETTING}
                config |= {} if usual else {SETTING: call.trained}
            given = ", ".join(f"{name}={value}" for name, value in config.items())
            scale = "the scale of guidance is one more than theirs" if call.less else ""
            every = f"they go all {call.trained} steps of training" if call.trained else ""
            clamped = "they clamp the result, which decoding does here" if clamps else ""
            held = f"{call.wrapper} preconditions the model" if call.wrapper else ""
            ran = f"it takes the steps of {call.name}, which was run with stand-ins"
            said = (ran, given, held, scale, every, clamped)
            reason = "; ".join(filter(None, said))
            named = ((call.module, call.name), *call.parts)
            yield Process(
                call.where, tuple(f"from {module} import {name}" for module, name in named),
                output.format(called=call.called), found.name, reason, config, rises=found.rises,
                todo=tuple(call.todo), denoiser=f"Denoiser({asked})", draws=call.draws, whole=found.whole,
                real=found.real, scales=found.scales, shift=shift or 1.0, every_step=bool(call.trained),
            )  # fmt: skip


def _trace(way: _Way, ended: float) -> LoopTrace:
    calls = tuple((x, t) for x, t in way["calls"])
    return LoopTrace(None, calls, ended, levels_of(calls), tuple(map(tuple, way["tables"])))


def levels_of(calls: tuple[tuple[float, float], ...]) -> tuple[float, ...]:
    """Return the noise levels that the times stand for, which fall from 1 or below."""
    times = [time / TRAINED if calls[0][1] > 1 else time for _, time in calls]
    return tuple(1 - one for one in times) if times[0] < times[-1] else tuple(times)


def shift_of(ways: Mapping[tuple[int, int], LoopTrace]) -> float | None:
    """Return the shift that all levels have; None for other levels."""
    found = {None if one is None else round(one, 5) for (count, _), way in ways.items()
             for one in [bent([*way.levels, 0.0], count)]}  # fmt: skip
    return found.pop() if len(found) == 1 else None
