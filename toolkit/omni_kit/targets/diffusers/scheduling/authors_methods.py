"""The scheduler that the authors' own method steps with, and what it passes the model: the method is run, in a process
of its own.
"""

import ast
import importlib.util
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from omni_kit.isolation.worker import StepError
from omni_kit.pysource.eval import Unsupported
from omni_kit.targets.diffusers.porting.forward import LATENTS, MASK, TIME
from omni_kit.targets.diffusers.scheduling.authors_process import levels_of, shift_of
from omni_kit.targets.diffusers.scheduling.betas import schedulers
from omni_kit.targets.diffusers.scheduling.choice import Stepping
from omni_kit.targets.diffusers.scheduling.extracted_loop import scheduler_of
from omni_kit.targets.diffusers.scheduling.library_scheduler import COUNTS, FIRST, Installed, installed_along
from omni_kit.targets.diffusers.trials import METHODS, tried
from omni_kit.upstream.repositories.names import Defined, resolve
from omni_kit.upstream.repositories.processes.process import Process
from omni_kit.upstream.repositories.processes.scheduled_methods import ScheduledMethod, scheduled_methods
from omni_kit.upstream.repositories.reference import BETWEEN, Reference
from omni_kit.upstream.repositories.returned import returned
from omni_kit.upstream.repositories.sampler_step.simulation import LoopTrace

_TIMEOUT = 100.0
_Found = Mapping[str, Any]


@dataclass(frozen=True)
class Stood:
    """Result of running an authors' method.

    Attributes:
        process: how the method is called for a comparison; None if no pipeline can repeat it.
        stepping: the scheduler.
        conditions: the other arguments that it passes the model; `constants`: those that are always the same.
        guides: it joins two answers by a scale.
        embedded: the model's argument for that scale.
        listed: the model returns a list.
        lone: the axis of one place that the model's latents have, and those of the method lack; 0 without one.
        more: by so much the usual scale of guidance is more than theirs.
        above: the usual scale above which they guide.
        why: what a pipeline cannot repeat, for each method.
    """

    process: Process | None = None
    stepping: Stepping = field(default_factory=Stepping)
    conditions: tuple[str, ...] = ()
    constants: Mapping[str, Any] = field(default_factory=dict)
    guides: bool = False
    embedded: str = ""
    listed: bool = False
    lone: int = 0
    more: int = 0
    above: int = 1
    why: tuple[str, ...] = ()


def method_along(reference: Reference, names: Mapping[str, str], text: str) -> Stood:
    """Return what the first of the authors' methods does that a pipeline can repeat.

    Args:
        names: what the authors call an argument of forward -> what it is called here.
        text: the argument for a prompt or labels.
    """
    latents, time, mask = (next((old for old, new in names.items() if new == one), "") for one in (LATENTS, TIME, MASK))
    methods = scheduled_methods(reference)
    if not (latents and time and methods) or importlib.util.find_spec("torch") is None:
        return Stood()
    output = returned(reference)
    model = {
        "order": [*dict.fromkeys(name.partition("{")[0] for name in reference.forward)], "latents": latents,
        "time": time, "methods": _methods_of(reference), "takes_more": _takes_more(reference), "returns": output.form,
        "values": output.count, "keys": output.keys,
    }  # fmt: skip
    specs = [{"module": one.source.module, "owner": one.owner, "method": one.made.name,
              "scheduler": _given(reference, one), **model} for one in methods]  # fmt: skip
    request = {
        "reference": f"{reference.cls.source.path}{BETWEEN}{reference.class_name}", "axes": [4, 5, 3, 2],
        "counts": COUNTS, "methods": specs,
    }  # fmt: skip
    try:
        found = tried(f"{METHODS}:trace", request, _TIMEOUT, library=True)
    except StepError as error:
        return Stood(why=(str(error),))
    why: list[str] = []
    required = {name for name, one in reference.forward.items() if one.required}
    stood: list[Stood] = []
    for method, spec, one in zip(methods, specs, found, strict=True):
        try:
            if "why" in one:
                raise Unsupported(one["why"])
            stepping = _stepping(method, one)
            told = {latents, time, text, mask, one["embedded"], *one["conditions"], *one["constants"]}
            if left := sorted(required - told):
                raise Unsupported(f"passes its model no {', '.join(left)}")
        except Unsupported as error:
            why.append(f"{method.name} ({method.where}) {error}")
            continue
        stood.append(_stood(reference, method, {**spec, "text": text, "mask": mask if mask in required else ""}, one,
                            stepping))  # fmt: skip
    return replace(stood[0] if stood else Stood(), why=tuple(why))


def _stood(
    reference: Reference, method: ScheduledMethod, spec: Mapping[str, Any], one: _Found, stepping: Stepping
) -> Stood:
    spec = {**spec, "first": one["first"], "alone": one["alone"], "gives": one["gives"]}
    spec |= {name: one[name] for name in ("lone", "more", "above")}
    known = {spec["text"], spec["mask"], next((n for n in one["conditions"] if n == spec["mask"]), "")}
    conditions = tuple(name for name in one["conditions"] if name not in known and _has(reference, name))
    constants = {name: value for name, value in one["constants"].items() if _has(reference, name)
                 and name != "return_dict" and reference.forward[name].default != value}  # fmt: skip
    lines, given = (f"spec = {spec!r}",), spec["scheduler"]
    same = given is not None and given["name"] == one["scheduler"]["name"]
    named = f"set the scheduler as the authors do: {method.name} is given any"
    todo = [f"{named} {one['scheduler']['name']} ({method.where})"] if same and not given["config"] else []
    less = "; the scale of guidance is one more than theirs" if one["more"] else ""
    todo += [f"keep latents where a mask is set, as {method.name} does ({method.where})"] if one["masked"] else []
    called = f"sampled(model, noise, steps, text, against, scale, {'conditions' if conditions else '{}'}, spec)"
    imported = (f"from {METHODS} import sampled",)
    process = Process(
        method.where, imported, called, stepping.name, stepping.reason + less, stepping.installed.config,
        rises=stepping.installed.rises, held=lines, todo=tuple(todo),
    )  # fmt: skip
    listed = spec["returns"] == "list"
    return Stood(process, stepping, conditions, constants, one["guides"], one["embedded"], listed, one["lone"],
                 one["more"], one["above"])  # fmt: skip


def _has(reference: Reference, name: str) -> bool:
    return name in reference.forward


def _stepping(method: ScheduledMethod, found: _Found) -> Stepping:
    """Return the scheduler that goes where the authors' goes.

    Raises:
        Unsupported: none does.
    """
    name, config, own = found["scheduler"]["name"], found["scheduler"]["config"], found["own"]
    ways = {(one["count"], one["model"]): _trace(one, found["tables"]) for one in found["ways"]}
    real = isinstance(next(iter(ways.values())).calls[0][1], float)
    reason = f"{method.name} takes its steps with {name}, as a run of it with stand-ins has shown"
    theirs = not found["scheduler"]["module"].startswith("diffusers.")
    if own is not None and (theirs or name in schedulers()):
        kept = own["config"] if theirs else _own(name, own["config"])
        installed = Installed("" if theirs else name, kept, own["whole"], real, own["scales"], own["rises"], True,
                              own["negated"])  # fmt: skip
        copied = resolve(method.source, name) if theirs else None
        if not theirs or isinstance(copied, Defined):
            given = ", ".join(f"{key}={value}" for key, value in ({} if theirs else kept).items())
            more = "its class is copied" if theirs else given
            return Stepping(installed, reason="; ".join(filter(None, (reason, more))), shift=config.get("shift", 1.0),
                            copied=copied if isinstance(copied, Defined) else None, told=own["told"])  # fmt: skip
    shift = shift_of(ways)
    one = installed_along(ways, shift)
    if one is not None and (one.name != FIRST or shift is not None):
        given = ", ".join(f"{key}={value}" for key, value in one.config.items())
        ran = f"it takes the steps of {method.name}, which was run with stand-ins"
        return Stepping(one, reason="; ".join(filter(None, (ran, given))), shift=shift or 1.0)
    raise Unsupported(f"steps with {name}, as no scheduler of diffusers does")


def _own(name: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that differ from a scheduler's defaults."""
    usual = inspect.signature(schedulers()[name].__init__).parameters
    return {key: value for key, value in config.items() if key in usual and usual[key].default != value}


def _trace(way: Mapping[str, Any], tables: Sequence[Sequence[float]]) -> LoopTrace:
    calls = tuple((x, t) for x, t in way["calls"])
    return LoopTrace(None, calls, way["ended"], levels_of(calls), tuple(map(tuple, tables)))


def _given(reference: Reference, method: ScheduledMethod) -> dict[str, Any] | None:
    """Return the scheduler that a method is given, where something says which one."""
    try:
        chosen = scheduler_of(reference, method.source, method.made, method.scheduler)
    except Unsupported:
        return None
    if isinstance(made := chosen.meant, Defined):
        return {"module": made.source.module, "name": made.name, "config": chosen.given}
    return {"module": "diffusers", "name": made, "config": chosen.given}


def _takes_more(reference: Reference) -> bool:
    found = reference.cls.method("forward")
    return found is not None and found[1].args.kwarg is not None


def _methods_of(reference: Reference) -> list[str]:
    return [one.name for one in ast.walk(reference.cls.node) if isinstance(one, ast.FunctionDef)]
