"""The scheduler of diffusers that goes where a sampler of the authors' goes: theirs is run, in a process of its own."""

import importlib.util
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from inspect import signature
from itertools import groupby
from typing import Any

from omni_kit.isolation.worker import StepError
from omni_kit.targets.diffusers.porting.forward import LATENTS, TIME
from omni_kit.targets.diffusers.scheduling.betas import TRAINED_BETAS, betas_in, schedules_of, short
from omni_kit.targets.diffusers.scheduling.library_scheduler import (
    COUNTS,
    FIRST,
    Installed,
    goes_along,
    installed_along,
    installed_throughout,
    scheduler_class,
)
from omni_kit.targets.diffusers.scheduling.own_schedulers import ANCESTRAL, COUNTS_FROM_ONE
from omni_kit.targets.diffusers.scheduling.settings import TRAINED as SETTING
from omni_kit.targets.diffusers.trials import tried
from omni_kit.upstream.repositories.processes.authors_calls import authors_calls, chosen
from omni_kit.upstream.repositories.processes.call_arguments import GIVEN, SHAPE, TRAINED
from omni_kit.upstream.repositories.processes.process import JOINED, MIXED, Interval, Joined, Mixed, Process
from omni_kit.upstream.repositories.processes.sampler_call import AuthorsCall, Guidance
from omni_kit.upstream.repositories.processes.solver_calls import solver_calls
from omni_kit.upstream.repositories.processes.used_samplers import UNUSED, used_samplers
from omni_kit.upstream.repositories.recorded import EVERY
from omni_kit.upstream.repositories.reference import BETWEEN, Reference
from omni_kit.upstream.repositories.returned import TUPLE, returned
from omni_kit.upstream.repositories.sampler_names import is_named
from omni_kit.upstream.repositories.sampler_step.simulation import LoopTrace
from omni_kit.upstream.repositories.sampling import bent

STANDING_IN = "StandInDenoiser"
"""Name of the denoiser in the authors' sampling, where they may have a Denoiser of their own."""
_WORKER = "omni_kit.targets.references.authors_calls"
_TIMEOUT = 120.0
_MOST = 6
_PLAIN = "DDPMScheduler"
_SINGLE = 9  # digits of single precision
_DIGITS = 4  # of a shift
_LEAST = 0.25  # no noise level is kept above it
_LONGEST_REASON = 120
_NUMBER = re.compile(r"\d+(\.\d*)?")
_SAID = ("module", "name", "parts", "called", "guided", "draws", "trained", "far", "defined", "held", "joined", "mixed")
_SOLVER_COUNTS = (4, 7, 9, 10, 14, 15)
"""Numbers of steps of solvers, which end short runs with lower orders."""
_WHOLE = (60, 50, EVERY)
"""Numbers of steps of training, all of which a sampler goes: enough of them for betas that grow as steps are fewer."""
_DIVISOR = 5
"""A further number of steps, which divides that of training as the first of COUNTS does."""
_DIVISORS = (COUNTS[0], _DIVISOR)
_Way = Mapping[str, Any]
_LATENTS = "denoiser.ended({called}, begun.shape)"
_ENDED: Mapping[str, Callable[[_Way], float]] = {
    _LATENTS: lambda way: way["ended"],
    f"{_LATENTS} * 2 - 1": lambda way: way["ended"] * 2 - 1,
}
"""Expressions for latents: what a sampler returns, or pictures from 0 to 1."""
_INSIDE: Mapping[str, Callable[[_Way], float]] = {"computed(lambda: {called}, begun.shape)": lambda way: way["ended"]}
"""The expression for latents of a sampler that returns none."""
_UNCLAMPED: Mapping[str, Callable[[_Way], float]] = {
    "unclamped(lambda: denoiser.ended({called}, begun.shape))": lambda way: way["unclamped"]
}
"""The expression for latents of a sampler that clamps last of all, and may scale pictures then."""


def process_along(
    reference: Reference, names: Mapping[str, str], why: dict[str, str] | None = None
) -> Process | None:  # fmt: skip
    """Return the sampler of the authors' that a scheduler of diffusers reproduces; None without one, or with several.

    Args:
        names: what the authors call an argument of forward -> what it is called here.
        why: receives the reason why a sampler is not repeated, by its file:line; empty for one of several that can be.
    """
    latents, time = (next((old for old, new in names.items() if new == one), "") for one in (LATENTS, TIME))
    if not (latents and time) or importlib.util.find_spec("torch") is None:
        return None
    calls, unsure = _used(reference, {} if why is None else why)
    names_of = (latents, time)
    for (whole, _), kind in groupby(calls, key=lambda one: (bool(one.trained), one.usual)):
        counts = _WHOLE if whole else (*COUNTS, _DIVISOR)
        found = _along(reference, [*kind], names_of, counts, why=why, unsure=unsure)
        if found is not None:
            return found
    return _along(reference, [] if reference.loop else solver_calls(reference), names_of, _SOLVER_COUNTS, solves=True)


def _used(reference: Reference, why: dict[str, str]) -> tuple[list[AuthorsCall], bool]:
    """Return the calls of the named sampler, else of those that the authors use; and whether nothing says which."""
    calls = authors_calls(reference)
    if reference.loop:
        return [one for one in calls if is_named(one.full_name, reference.loop)], False
    known = used_samplers(reference, {one.full_name for one in calls})
    kept = [one for one in calls if not known or one.full_name in known]
    why |= {one.where: UNUSED for one in calls if one not in kept}
    return kept, not known


def confirmed(reference: Reference, process: Process, names: Mapping[str, str]) -> Process | None:
    """Return an integration as a run with stand-ins shows it: the same, one with another time, or None if it takes
    other steps. If it does not run it stays as it was read.

    Args:
        names: as `process_along` takes them.
    """
    latents, time = (next((old for old, new in names.items() if new == one), "") for one in (LATENTS, TIME))
    if process.held and latents and time and importlib.util.find_spec("torch") is not None:
        return _held(reference, process, (latents, time))
    if process.scheduler != FIRST or process.denoiser or not time or importlib.util.find_spec("torch") is None:
        return process
    parts = [(line.split()[1], line.split()[3]) for line in process.imports]
    called = process.called.replace("asked", "denoiser").replace(", **told", "")
    call = AuthorsCall(process.where, *parts[0], parts[0][1], called, draws=False, parts=tuple(parts[1:]))
    ran = _runs(reference, [call], (latents, time), COUNTS)
    if not ran or "ways" not in ran[0][1]:
        return process
    found = _process(call, ran[0][1], _asked(reference, latents, time), solves=False)
    if found is None:
        return None
    if (found.scheduler, found.rises, found.whole, found.shift) == (FIRST, process.rises, False, 1.0):
        return process
    return replace(found, reason=f"{process.reason}, along the times that a run has shown", todo=process.todo)


def _held(reference: Reference, process: Process, names: tuple[str, str]) -> Process | None:
    """Return an integration whose object holds the model as a run of it shows it: with the steps that it leaves out;
    None if it takes other steps than its scheduler. If it does not run it stays as it was read.
    """
    *parts, (module, name) = ((line.split()[1], line.split()[3]) for line in process.imports)
    joined = process.joined.names if process.joined is not None else ()
    call = AuthorsCall(process.where, module, name, name, process.called, draws=False, parts=tuple(parts),
                       held=process.held, joined=joined)  # fmt: skip
    ran = _runs(reference, [call], names, _DIVISORS)
    if not ran or "ways" not in ran[0][1]:
        return process
    told = {(one["count"], one["model"]): _trace(one, one["ended"]) for one in ran[0][1]["ways"]}
    for skips in (0, 1):
        if goes_along(Installed(process.scheduler, process.config, whole=True, by_count=True, skips=skips), told):
            return replace(process, skips=skips)
    return None


def _along(
    reference: Reference, calls: Sequence[AuthorsCall], names: tuple[str, str], counts: Sequence[int],
    solves: bool = False, why: dict[str, str] | None = None, unsure: bool = False,
) -> Process | None:  # fmt: skip
    """Return the sampler among calls that a scheduler reproduces.

    Args:
        names: what the authors call latents and the step.
        counts: numbers of steps to compare.
        solves: these are solvers, of which all must guide in one way.
        why: see `process_along`.
        unsure: nothing says which one the authors use, so that all classes must take the same steps.
    """
    pairs = _runs(reference, calls, names, counts)
    ways_to_guide = {one["guides"] for call, one in pairs if "ways" in one and call.guided}
    if solves and not ways_to_guide <= {Guidance.usual} and ways_to_guide != {Guidance.less}:
        return None
    ran = [(_guiding(_known(call, one), one["guides"]), one) for call, one in pairs
           if "ways" in one and one["guides"] != Guidance.other]  # fmt: skip
    distinct: list[tuple[AuthorsCall, dict[str, Any]]] = []
    for call, one in ran:  # farther ones may be of another algorithm
        near = (call.far, call.inner) == (ran[0][0].far, ran[0][0].inner)
        if near and all(one["ways"] != other["ways"] for _, other in distinct):
            distinct.append((_any_size(call, [other for other, same in ran if same["ways"] == one["ways"]]), one))
    asked = _asked(reference, *names)
    usual = chosen(reference, [call for call, _ in distinct])
    kept = [(call, one) for call, one in distinct if usual in ("", call.function)]
    kept = [(call, one) for call, one in kept if not _inverts(one)]
    went = [(call, _process(call, found, asked, solves)) for call, found in kept[:_MOST]]
    made = [one for _, one in went if one is not None]
    same = {(one.scheduler, str(one.config), one.rises, one.whole, one.shift) for one in made}
    others = ", ".join(f"{call.full_name} ({call.where})" for call, one in went if one is None)
    agree = len(same) == 1 and not (
        unsure and _of_other_classes(pairs, {call for call, one in went if one is not None})
    )
    if why is not None and not agree:
        why |= {call.where: _refused(one) for call, one in pairs if _refused(one)}
        why |= {call.where: "" if one is not None else "steps as no scheduler of diffusers does" for call, one in went}
    todo = (f"compare with the authors' other samplers, which step differently: {others}",) if others else ()
    between = [call for call, one in ran if _goes_between(one)]
    if not agree and not solves and between:
        return _along(reference, between, names, _SOLVER_COUNTS, solves=True, why=why, unsure=unsure)
    return replace(made[0], todo=(*made[0].todo, *todo)) if agree else None


def _goes_between(found: _Way) -> bool:
    """Return whether a call goes between the steps of training, as solvers do."""
    times = [time for _, time in found["ways"][0]["calls"]]
    return times[0] > 1 and any(time != int(time) for time in times)


def _of_other_classes(pairs: Sequence[tuple[AuthorsCall, _Way]], made: Collection[AuthorsCall]) -> bool:
    """Return whether classes as near as those of some calls have samplers, none of which a scheduler reproduces; a
    base class that has the same method does not count.
    """
    own, far, where = {(one.module, one.name) for one in made}, {one.far for one in made}, {one.where for one in made}
    same = [one["ways"] for call, one in pairs if call in made and "ways" in one]
    others = (one.get("ways") for call, one in pairs if (call.module, call.name) not in own
              and call.name != call.function and call.far in far and call.where not in where)  # fmt: skip
    return any(ways not in same for ways in others)


def _inverts(found: Mapping[str, Any]) -> bool:
    """Return whether a call goes from pictures to noise: up the steps of training, from the first one."""
    times = [time for _, time in found["ways"][0]["calls"]]
    return times[0] < times[-1] and times[-1] > 1 and all(isinstance(one, int) for one in times)


def _refused(found: Mapping[str, Any]) -> str:
    """Return why a call of a sampler shows no scheduler; empty if it may."""
    if "ways" in found:
        return "guides by another formula than the usual one" if found["guides"] == Guidance.other else ""
    first = str(found["why"]).partition("; ")[0]
    return f"does not run with stand-ins ({first[:_LONGEST_REASON]})"


def _runs(
    reference: Reference, calls: Sequence[AuthorsCall], names: tuple[str, str], counts: Sequence[int]
) -> list[tuple[AuthorsCall, dict[str, Any]]]:
    """Return what each call did; empty if none could be run."""
    latents, time = names
    request = {
        "reference": f"{reference.cls.source.path}{BETWEEN}{reference.class_name}", "order": _order(reference),
        "latents": latents, "time": time, "values": _values(reference), "axes": [4, 3, 5, 2], "counts": counts,
        "calls": [{name: _plain(getattr(one, name)) for name in _SAID} for one in calls],
    }  # fmt: skip
    try:
        found = tried(f"{_WORKER}:trace", request, _TIMEOUT) if calls else []
    except StepError:
        return []
    return [*zip(calls, found, strict=True)]


def _plain(value: Any) -> Any:
    return asdict(value) if isinstance(value, Mixed) else value


def _order(reference: Reference) -> list[str]:
    return [*dict.fromkeys(name.partition("{")[0] for name in reference.forward)]


def _asked(reference: Reference, latents: str, time: str) -> str:
    """Return the arguments of the stand-in around a model, as written."""
    return f'asked, {_order(reference)!r}, "{latents}", "{time}", len(begun), {_values(reference)}, model'


def _any_size(call: AuthorsCall, alike: Sequence[AuthorsCall]) -> AuthorsCall:
    """Return the call, of those that go the same way, that takes latents of any shape: by another method of its object.

    Its own object may be made for square pictures only.
    """
    other = next((one for one in alike if one.name == call.name and one.far == call.far and SHAPE in one.called), call)
    return call if SHAPE in call.called else replace(other, takes=(*call.takes, *other.takes))


def _known(call: AuthorsCall, found: Mapping[str, Any]) -> AuthorsCall:
    """Return a call with values for arguments that nothing is known of: a run has shown which have an effect, and which
    are joined with latents.
    """
    called, joined = call.called, _joined(found)
    for name, value in found["known"].items():
        own = name.removeprefix(f"{GIVEN}.")
        text = f"{JOINED}[{own!r}]" if joined is not None and own in joined.names else value
        called = re.sub(rf"\b{re.escape(name)}\b", lambda _, text=text: text, called)  # type: ignore[misc]
    mixed = call.mixed if found["mixes"] else None
    if call.mixed is not None and mixed is None:
        called = re.sub(rf"\b{MIXED}\['\w+'\]", "None", called)
    assumed = (f"{name.partition('.')[2]}=1" for name in found["matter"])
    beside = joined.names if joined is not None else call.joined
    return replace(call, called=called, mixed=mixed, joined=beside, assumed=(*call.assumed, *assumed))


def _joined(found: Mapping[str, Any]) -> Joined | None:
    """Return the conditions that a run has shown to be joined with latents."""
    return Joined(found["joined"][0], tuple(found["joined"][1])) if found["joined"] else None


def _guiding(call: AuthorsCall, how: str) -> AuthorsCall:
    """Return a call that guides in a way that a run has shown."""
    if how == Guidance.unasked:
        return call
    less, said = how == Guidance.less, [one.partition("=")[2] for one in call.guides]
    scale = float(said[0]) + less if len(said) == 1 and _NUMBER.fullmatch(said[0]) else None
    return replace(call, guides=(), less=less, scale=scale if scale is not None and scale >= 1 else None)


def _values(reference: Reference) -> int | list[str]:
    """Return how many values forward returns, or the keys of the mapping that it returns."""
    found = returned(reference)
    return [*found.keys] or (found.count if found.form == TUPLE else 1)


def _process(call: AuthorsCall, found: Mapping[str, Any], asked: str, solves: bool) -> Process | None:
    """Return the process of a call that a scheduler reproduces."""
    clamps = call.trained or any(one["unclamped"] != one["ended"] for one in found["ways"])
    inside = any(one["inside"] for one in found["ways"])
    outputs = {} if inside else {**_ENDED, **(_UNCLAMPED if clamps else {})}
    for output, made in {**outputs, **_INSIDE}.items():
        told = {(one["count"], one["model"]): _trace(one, made(one)) for one in found["ways"]}
        shift = shift_of(told)
        one = _throughout(call, told, found["tables"]) if call.trained else _stepped(call, told, shift, solves)
        if one is None and not (call.trained or solves) and found["fine"] is not None:
            one = _denoised(told, shift, found["fine"], made)
        if one is not None:
            given = ", ".join(f"{name}={value}" for name, value in one.config.items())
            scale = "the scale of guidance is one more than theirs" if call.less else ""
            every = f"they go all {call.trained} steps of training" if call.trained else ""
            clamped = "they clamp the result, which decoding does here" if output in _UNCLAMPED else ""
            held = f"{call.wrapper} preconditions the model" if call.wrapper else ""
            ran = f"it takes the steps of {call.name}, which was run with stand-ins"
            said = (ran, given, held, scale, every, clamped)
            return Process(
                call.where, call.imports, output.format(called=call.called), one.installed.name,
                "; ".join(filter(None, said)), one.config,
                rises=one.installed.rises, todo=(*call.todo, *one.todo), denoiser=f"{STANDING_IN}({asked})",
                draws=call.draws, whole=one.installed.whole, real=one.installed.real, scales=one.installed.scales,
                shift=shift or 1.0, small=one.small, empty=tuple({*found["empty"]} - {*call.takes}),
                scale=call.scale, guides=bool(call.guided) and found["guides"] != Guidance.unasked,
                within=Interval(*found["within"]) if found["within"] else None,
                ranks=tuple(found["ranks"]), joined=_joined(found), level=one.installed.level,
                mixed=call.mixed, denoised=one.installed.denoised,
            )  # fmt: skip
    return None


@dataclass(frozen=True)
class _Found:
    """A scheduler; `config`: of a checkpoint; `small`: of a toy that goes all its steps; `todo`: left to a person."""

    installed: Installed
    config: Mapping[str, Any]
    small: Mapping[str, Any] = field(default_factory=dict)
    todo: tuple[str, ...] = ()


def _stepped(
    call: AuthorsCall, told: Mapping[tuple[int, int], LoopTrace], shift: float | None, solves: bool
) -> _Found | None:
    """Return the scheduler that is passed a number of steps.

    If the authors' sampler goes another number of steps where that does not divide those of training, others count.
    """
    rounds = not solves and any(len(way.calls) != count for (count, _), way in told.items())
    kept = {key: way for key, way in told.items() if len(way.calls) == key[0]} if rounds else told
    kept = kept if len({count for count, _ in kept}) > 1 else told
    found = installed_along(kept, shift, own=True, solves=solves)
    if found is None or (found.name == FIRST and shift is None):
        return None
    todo = f"sample with a number of steps that divides {TRAINED}: with others {call.name} goes more ({call.where})"
    return _Found(found, found.config, todo=(todo,) if kept is not told else ())


def _denoised(
    told: Mapping[tuple[int, int], LoopTrace],
    shift: float | None,
    fine: Mapping[str, Any],
    made: Callable[[_Way], float],
) -> _Found | None:
    """Return the flow scheduler that goes where a loop does whose model predicts data.

    Args:
        fine: what it does in many steps, which show the number that a division by a small noise level has instead.
    """
    every = {**told, (fine["count"], fine["model"]): _trace(fine, made(fine))}
    for least in (0.0, *(one for one in fine["numbers"] if 0 < one < _LEAST)):
        found = installed_along(every, shift, own=True, denoised=least)
        if found is not None:
            return _Found(found, found.config)
    return None


def _throughout(
    call: AuthorsCall, told: Mapping[tuple[int, int], LoopTrace], tables: Sequence[Sequence[float]]
) -> _Found | None:
    """Return the scheduler that goes all steps of training, with the schedule that the authors' own betas are.

    Args:
        tables: the long lists of numbers that they have with as many steps as they train with.
    """
    found = installed_throughout(told)
    more = bool(found is not None and found[0].config.get(COUNTS_FROM_ONE))
    real = betas_in([one for one in tables if len(one) == call.trained + more])
    if found is None or (whole := found[1][EVERY].among(real)) is None:
        return None
    installed, betas = found
    usual = {name: one.default for name, one in signature(scheduler_class(installed.name).__init__).parameters.items()}
    named = _schedule(installed.name, whole.numbers, more)
    kept = {name: value for name, value in (named or {SETTING: call.trained}).items() if value != usual[name]}
    again = _schedule(installed.name, betas[EVERY].numbers, more)
    same = named is not None and again == {**named, SETTING: EVERY}
    small = (
        {**kept, SETTING: EVERY}
        if same
        else {SETTING: EVERY, TRAINED_BETAS: [short(one, _SINGLE) for one in betas[EVERY].numbers]}
    )
    todo = () if named is not None else (
        f"make the scheduler of a checkpoint with {TRAINED_BETAS}: the {call.trained} betas of {call.name}"
        f" ({call.where}), which no beta_schedule of diffusers has; the toy has those of {EVERY} steps",
    )  # fmt: skip
    return _Found(installed, {**installed.config, **kept}, {**installed.config, **small}, todo)


def _schedule(name: str, betas: Sequence[float], more: bool) -> Mapping[str, Any] | None:
    """Return the settings with which a scheduler has these betas, of which there may be one more than steps; None if
    only their list says them.
    """
    found = next(schedules_of(_PLAIN if name == ANCESTRAL else name, [betas]), None)
    if found is None or (name == ANCESTRAL and found.get("beta_schedule") not in ("linear", "scaled_linear")):
        return None
    return {**found, SETTING: len(betas) - more}


def _trace(way: _Way, ended: float) -> LoopTrace:
    calls = tuple((x, t) for x, t in way["calls"])
    return LoopTrace(None, calls, ended, levels_of(calls), tuple(map(tuple, way["tables"])))


def levels_of(calls: tuple[tuple[float, float], ...]) -> tuple[float, ...]:
    """Return the noise levels that the times stand for, which fall from 1 or below."""
    times = [time / TRAINED if calls[0][1] > 1 else time for _, time in calls]
    return tuple(1 - one for one in times) if times[0] < times[-1] else tuple(times)


def shift_of(ways: Mapping[tuple[int, int], LoopTrace]) -> float | None:
    """Return the shift that all levels have; None for other levels."""
    found = {None if one is None else short(one, _DIGITS) for (count, _), way in ways.items()
             for one in [bent([*way.levels, 0.0], count)]}  # fmt: skip
    return found.pop() if len(found) == 1 else None
