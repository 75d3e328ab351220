"""Two samples for a diffusion transformer, by the arguments that its forward names."""

import inspect
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any

import torch
from torch import nn

from omni_kit.errors import BadInput, MissingRequirement
from omni_kit.isolation.failures import one_line
from omni_kit.plurals import counted
from omni_kit.pysource.reads import items_read
from omni_kit.toys.batches.denoiser.arguments import TARGET, ask, ask_again
from omni_kit.toys.batches.denoiser.forward_code import (
    dimensions,
    joined,
    likely_dimensions,
    picked,
    taken_one_by_one,
    tree_of,
)
from omni_kit.toys.batches.denoiser.layouts import Layout, layouts, stated_layout
from omni_kit.toys.batches.denoiser.options import Argument, LikeLatents, Option, Role, SeveralLikeLatents, residuals
from omni_kit.toys.batches.denoiser.roles import WHOLE, options_of, role_of
from omni_kit.toys.batches.denoiser.samples import samples_of
from omni_kit.toys.batches.denoiser.scalars import time
from omni_kit.toys.batches.denoiser.sizes import ARGUMENTS, SCALE, Sizes, steps_of, widths_of
from omni_kit.toys.batches.denoiser.trial import LONGEST, Chosen, Maker, Trial
from omni_kit.toys.elapsed import Elapsed
from omni_kit.toys.tensors import Tensors
from omni_kit.toys.weights import shuffled_ramp
from omni_kit.upstream.repositories.recorded import STATED
from omni_kit.upstream.repositories.several_latents import several_in

_SAMPLES = 2
PORTED = "_arguments"  # of the config: what the authors call an argument -> what diffusers does
_LATENTS, _TIME = "hidden_states", "timestep"
_NO_SUCH = re.compile(r"'(\w+)' object has no attribute '(\w+)'$")
_STATE_IT = "state the argument of the constructor that makes it, or leave out what needs it, in toy_config.json"
_HINT = (
    'say what it is in toy_config.json: "_inputs": {"NAME": {"shape": [1, 77, 64], "dtype": "float32"}, "OTHER": [0.5]}'
)
_ELSEWHERE = "set what it needs, or pass a class that runs without it, in a copy of the authors' files"


class NoInputs(BadInput):
    """A model accepts no inputs that could be derived.

    Attributes:
        far: the furthest progress of its forward; see `Reach`.
        chosen: what was chosen for every argument there.
        of_surroundings: the error there is none of inputs; see `Reach`.
    """

    far: tuple[int, ...] = ()
    chosen: Chosen | None = None
    of_surroundings: bool = False


@dataclass(frozen=True)
class Search:
    """The inputs that a model was found to take.

    Attributes:
        inputs: what forward takes for each sample, and `training_target`, of the shape of its answer: velocities.
        chosen: what was chosen for every argument.
        tried: how many inputs were tried for the sample that took most.
    """

    inputs: Tensors
    chosen: Chosen
    tried: int


def denoiser_inputs(model: Any) -> Tensors:
    """Return two samples for a diffusion transformer of diffusers; see `searched_inputs`."""
    return searched_inputs(model).inputs


def searched_inputs(
    model: Any, most: float = math.inf, start: Chosen | None = None, seconds: float = LONGEST
) -> Search:
    """Return two samples for a diffusion transformer of diffusers, by the arguments that its forward names.

    Args:
        most: how many inputs are tried before the model is taken to accept none.
        start: what a model of the same class takes, which is tried first.
        seconds: of the processor, for all samples.

    Raises:
        BadInput: forward requires something that there is no rule for.
    """
    inputs: Tensors = {}
    chosen: Chosen | None = None
    tried = 0
    before: Trial | None = None
    elapsed = Elapsed()
    for index in range(_SAMPLES):
        trial, make = _trial(model, index, most, seconds - elapsed.seconds)
        if before is not None:
            _add_found(trial, before)
        if chosen is None:
            chosen = trial.settle(start if start and _answers(trial, start) else _taken(model, trial))
        else:
            alike = (one for one in trial.of_other_places(chosen) if _answers(trial, one))
            if (other := next(alike, None)) is None:
                chosen = trial.settle(_taken(model, trial))
            else:
                chosen = other
        before = trial
        answer = trial.reach(chosen).answer
        if answer is None:
            raise BadInput(f"{type(model).__name__}.forward takes other inputs than the call before", _HINT)
        sample = make(chosen)
        sample[TARGET] = SCALE * shuffled_ramp(f"denoiser {index} target", answer.shape)
        inputs |= {f"{index}.{name}": tensor for name, tensor in sample.items()}
        tried = max(tried, trial.tried)
    return Search(inputs, chosen or {}, tried)


def needed_arguments(model: Any, inputs: Tensors) -> list[str]:
    """Return the arguments with a default that the first sample has, and that the model does not run without."""
    sample = samples_of(inputs)[0]
    given = {name: re.split(r"\W", name)[0] for name in sample}
    parameters = inspect.signature(inspect.unwrap(type(model).forward)).parameters.values()
    optional = [one.name for one in parameters if one.default is not one.empty and one.name in given.values()]
    needed = []
    for name in optional:
        try:
            with torch.no_grad():
                ask_again(model, {key: one for key, one in sample.items() if given[key] != name})
        except Exception:  # whatever the authors' code says
            needed.append(name)
    return needed


def _add_found(trial: Trial, before: Trial) -> None:
    """Add to the options of a sample those of other sizes that the search for the sample before has found."""
    for name, options in before.choices.items():
        own = trial.choices[name]
        if len(own) == before.offered[name]:
            own += options[len(own) :]


def long_inputs(model: Any, samples: int, length: int) -> Tensors:
    """Samples as large as people train them, for a diffusion transformer of diffusers.

    Args:
        length: about how many patches each has.

    Returns:
        As `searched_inputs`; all samples are alike.

    Raises:
        BadInput: forward takes no inputs of this size.
    """
    trial, _ = _trial(model, 0)
    chosen = trial.settle(_taken(model, trial))
    sizes = _sizes(model, 0)
    latents, choices, _ = _choices(model, sizes)
    sample = _made(model, replace(sizes, length=length), latents, choices, chosen)
    try:
        with torch.no_grad():
            answer = ask(model, sample)
    except (RuntimeError, ValueError, IndexError) as error:
        raise BadInput(f"{type(model).__name__}.forward accepts no {length} patches: {one_line(error)}") from error
    sample[TARGET] = SCALE * shuffled_ramp("denoiser target", answer.shape)
    return {f"{index}.{name}": tensor for index in range(samples) for name, tensor in sample.items()}


def _answers(trial: Trial, chosen: Chosen) -> bool:
    known = chosen.keys() == trial.choices.keys() and all(at < len(trial.choices[name]) for name, at in chosen.items())
    return known and trial.reach(chosen).answer is not None


def _trial(model: Any, index: int, most: float = math.inf, seconds: float = LONGEST) -> tuple[Trial, Maker]:
    """Return the trial of a sample, and what makes its inputs."""
    sizes = _sizes(model, index)
    latents, choices, alike = _choices(model, sizes)

    def make(chosen: Chosen) -> Tensors:
        return _made(model, sizes, latents, choices, chosen)

    return Trial(model, choices, make, alike, most, seconds), make


def _sizes(model: Any, index: int) -> Sizes:
    return Sizes(index, _config(model), widths_of(model), steps=steps_of(model))


def _made(model: Any, sizes: Sizes, latents: str, choices: Mapping[str, list[Any]], chosen: Chosen) -> Tensors:
    """Return the inputs of a sample, of what was chosen."""
    layout: Layout = choices[latents][chosen[latents]]
    laid = replace(sizes, film=layout.film, square=layout.square, fixed=layout.fixed, coarse=layout.coarse)
    laid = replace(laid, row="n" in layout.axes)
    laid = replace(laid, noisy=tuple(layout(laid)[layout.inside].shape))
    options = ((name, choices[name][at]) for name, at in chosen.items())
    made = {name: option(laid) for name, option in options if option is not None}
    if layout.rows:
        rows = laid.noisy[0]
        kept = {name for name, at in chosen.items() if getattr(choices[name][at], "one_row", False)}
        made = {name: parts if name in kept else {where: _repeated(one, rows) for where, one in parts.items()}
                for name, parts in made.items()}  # fmt: skip
    return _placed({name + where: one for name, parts in made.items() for where, one in parts.items()}, model)


def _repeated(one: torch.Tensor, rows: int) -> torch.Tensor:
    """Return a tensor of one row with as many as latents have; what has several values is turned by one in each."""
    if not one.dim() or len(one) != 1:
        return one
    return torch.cat([one if one.dim() == 1 else one.roll(row, -1) for row in range(rows)])


def _config(model: Any) -> Mapping[str, Any]:
    """Return the arguments of a model: diffusers keeps them as the config."""
    config: Mapping[str, Any] = getattr(model, ARGUMENTS, None) or model.config
    return config


def _taken(model: Any, trial: Trial) -> Chosen:
    """Return inputs that the model takes.

    Raises:
        NoInputs: there are none.
    """
    chosen, reach = trial.run()
    if reach.answer is None:
        name = type(model).__name__
        furthest = f"the furthest of {counted(trial.tried, 'input')}: {_shown(trial, chosen)}"
        what = f"{name}.forward accepts no inputs that could be derived: {reach.error}"
        refusal = NoInputs(what, f"{_HINT}; {furthest}")
        if missing := _NOT_INSTALLED.search(reach.error):
            refusal = NoInputs(f"{name}.forward imports {missing[1]}, which is not installed", "install it")
        elif lacking := _LACKING.fullmatch(reach.error):
            refusal = NoInputs(f"{name}.forward does not run: {lacking[1]}", lacking[2])
        elif (unset := _NO_SUCH.search(reach.error)) and any(type(one).__name__ == unset[1] for one in model.modules()):
            what = f"{name}.forward reads {unset[2]}, which the constructor did not set: {reach.error}"
            refusal = NoInputs(what, _STATE_IT)
        elif reach.of_surroundings:
            tried = counted(trial.tried, "input")
            refusal = NoInputs(f"{name}.forward runs with none of {tried}: {reach.error}", _ELSEWHERE)
        refusal.far, refusal.chosen, refusal.of_surroundings = reach.far, chosen, reach.of_surroundings
        raise refusal
    return chosen


def _shown(trial: Trial, chosen: Chosen) -> str:
    """Return the shapes of the inputs of a choice."""
    try:
        return ", ".join(f"{name} {list(one.shape)}" for name, one in trial.make(chosen).items())
    except Exception as error:  # as in a trial: whatever is wrong with the choice
        return one_line(error)


def _choices(model: Any, sizes: Sizes) -> tuple[str, dict[str, list[Any]], list[list[str]]]:
    """Return the argument for latents, the options of each argument, and the groups of arguments with one role.

    Raises:
        BadInput: an argument must be given and is no data.
    """
    arguments = _arguments(model)
    ported = sizes.config.get(PORTED, {})
    latents = next((one for one in arguments if ported.get(one.name) == _LATENTS), None)
    noisy = _noisy([one.name for one in arguments])
    latents = latents or next(one for one in arguments if one.name == noisy)
    beside = joined(inspect.unwrap(type(model).forward), latents.name) & {one.name for one in arguments if one.required}
    parts = 1 + len(beside)
    counts = dict.fromkeys([*(one for key, one in sizes.config.items() if _COUNT.search(key) and type(one) is int), 2])
    tree = tree_of(inspect.unwrap(type(model).forward))
    stacked = several_in(tree, latents.name) if tree is not None else set()
    taken = taken_one_by_one(inspect.unwrap(type(model).forward))
    choices: dict[str, list[Any]] = {latents.name: layouts(latents, sizes, [one.name for one in arguments], parts)}
    roles: dict[Role, list[str]] = {}
    stated = sizes.config.get(STATED, {})
    if (option := stated_option(latents.name, stated.get(latents.name))) is not None:
        choices[latents.name] = [stated_layout(option, option(sizes)[""].dim())]
    for argument in (one for one in arguments if one is not latents):
        if argument.name in stated:
            choices[argument.name] = [stated_option(argument.name, stated[argument.name])]
            continue
        role = time if ported.get(argument.name) == _TIME else role_of(argument)
        if role is not None:
            choices[argument.name] = options_of(role, argument, sizes)
            alike = _axes(argument.annotation) and argument.annotation == latents.annotation
            if alike or argument.name in beside:
                choices[argument.name].insert(0, LikeLatents(argument.name))
            roles.setdefault(role, []).append(argument.name)
        if argument.name in stacked:
            many = [SeveralLikeLatents(argument.name, count) for count in counts if count > 0]
            choices[argument.name] = [*many, *choices.get(argument.name, [])]
        elif argument.name in taken:
            rest = choices.get(argument.name, [] if argument.required else [None])
            choices[argument.name] = [residuals(argument.name), *rest]
        elif argument.required and role is None:
            name = f"{type(model).__name__}.forward"
            raise BadInput(f"{name} requires '{argument.name}', which no rule covers", _HINT)
    return latents.name, choices, [names for names in roles.values() if len(names) > 1]


def stated_option(name: str, said: Any) -> Option | None:
    """Return the option that a person states for an argument: null omits it; a number, or nested lists, is the tensor.

    An object has its `shape`, and its `dtype` where that is not float32.

    Raises:
        BadInput: it is none of these.
    """
    if said is None:
        return None
    if not isinstance(said, Mapping):
        return lambda sizes: {"": torch.tensor(said)}
    shape, dtype = said.get("shape"), getattr(torch, str(said.get("dtype", "float32")), None)
    if not isinstance(shape, (list, tuple)) or not isinstance(dtype, torch.dtype):
        raise BadInput(
            f'"{STATED}" does not say the shape of {name}', 'write {"shape": [1, 77, 64], "dtype": "float32"}'
        )
    whole = not dtype.is_floating_point
    return lambda sizes: {"": torch.ones(*shape, dtype=dtype) if whole else sizes.values(name, shape).to(dtype)}


def _arguments(model: Any) -> list[Argument]:
    forward = inspect.unwrap(type(model).forward)
    parameters = list(inspect.signature(forward).parameters.values())[1:]
    if all(one.kind in (one.VAR_KEYWORD, one.VAR_POSITIONAL) for one in parameters):
        hint = "pass a class whose forward names its inputs: derive one from it, in a copy of the authors' files"
        raise BadInput(f"{type(model).__name__}.forward names no inputs", hint)
    scaled = bool(_SCALED.search(inspect.getsource(forward))) or any(map(_takes_a_number, model.modules()))
    sigmas = scaled or "img_shapes" in (one.name for one in parameters)
    shapes = {one.name: _documented(type(model), one.name) for one in parameters}
    noisy = _noisy([one.name for one in parameters])
    axes = {size for size in shapes[noisy][1:] if size.isidentifier() and size != shapes[noisy][0]}
    whole = [
        Argument(
            one.name,
            _annotated(one, forward),
            one.default is one.empty,
            sigmas,
            (exact := dimensions(model, forward, one.name, parts=one.name == noisy))
            or _expected(type(model), one.name)
            or len(shapes[one.name])
            or _axes(str(one.annotation))
            or likely_dimensions(forward, one.name),
            {at: int(size) for at, size in enumerate(shapes[one.name]) if size.isdigit()},
            picked(forward, one.name),
            frozenset(at for at, size in enumerate(shapes[one.name]) if size in axes),
            exact is not None,
        )
        for one in parameters
        if one.kind not in (one.VAR_KEYWORD, one.VAR_POSITIONAL) and not isinstance(one.default, _NO_TENSOR)
    ]
    return [part for one in whole for part in _items(one, forward)]


def _items(argument: Argument, forward: Any) -> list[Argument]:
    """Return the items of an argument that is a mapping, as forward reads them; the argument itself where it is
    none.
    """
    tree = tree_of(forward)
    keys = items_read(tree, argument.name) if tree is not None else {}
    if not keys or role_of(argument) in WHOLE:
        return [argument]
    return [Argument(f"{argument.name}{{{key}}}", "", needed, argument.sigmas) for key, needed in keys.items()]


def _annotated(one: inspect.Parameter, forward: Any) -> str:
    """Return the annotation; without one the type of a plain default, or what the documentation says."""
    if one.annotation is not one.empty:
        return _OPTIONAL.sub(r"\1 | None", str(one.annotation))
    if isinstance(one.default, (bool, int, float, str, tuple)):
        return type(one.default).__name__
    said = re.search(rf"^ *{one.name} \(`?([\w.\[\], ]+)", inspect.getdoc(forward) or "", re.MULTILINE)
    return said[1] if said else str(one.annotation)


_NO_TENSOR = (torch.dtype, torch.device, torch.layout)  # types of defaults of arguments that take no tensors
_OPTIONAL = re.compile(r"^(?:typing\.)?Optional\[(\w+)\]$")
_COUNT = re.compile(r"context_(size|len)|history|(^|_)frames?(_|$)")
_NOT_INSTALLED = re.compile(r"^ModuleNotFoundError: No module named '([\w.]+)'")
_LACKING = re.compile(rf"{MissingRequirement.__name__}: (.*?)\. (Install them: .*)")
_SHAPE = re.compile(r"(?<!\w)[(\[]([^()\[\]`]*,[^()\[\]`]*)[)\]]")  # of an argument, in the words of a documentation
_NO_SHAPE = re.compile(r"tensor|optional|default|\b(int|float|bool|str)\b|e\.g\.|i\.e\.", re.IGNORECASE)
_NOISY = tuple(
    re.compile(pattern)
    for pattern in (
        r"^[xz]_?(t|noisy|noised)$|^nois(y|ed)_",
        r"^(hidden_states|x|sample|latents|decoder_input_tokens)$",
    )
)
_SCALED = re.compile(r"(timestep|\bt|noise_time)\b[^\n=]*\* *(1000|self\.\w*(t_scale|max))")


def _noisy(names: Sequence[str]) -> str:
    """Return the argument for noisy latents: the one that says so, or is usually called like it; else the first."""
    return next((name for pattern in _NOISY for name in names if pattern.search(name)), names[0])


def _takes_a_number(module: nn.Module) -> bool:
    """Return whether a layer is given a number as it is: one of a thousand would drown everything next to it."""
    return isinstance(module, nn.Linear) and module.in_features == 1


def _expected(cls: Any, name: str) -> int | None:
    """Return an argument's number of dimensions, if the class declares its sequence sharding."""
    cuts = (getattr(cls, "_cp_plan", None) or {}).get("", {})
    return getattr(cuts.get(name), "expected_dims", None)


def _axes(annotation: str) -> int | None:
    """Return the number of axes that an annotation names: three in `float["b n d"]`."""
    said = re.match(r"\w+\[[\"']([\w ]+)[\"']\]", annotation)
    return len(said[1].split()) if said else None


def _documented(cls: Any, name: str) -> list[str]:
    """Return the dimensions of an argument as forward documents them, or a method of the class that has it, too."""
    forward = inspect.unwrap(cls.forward)
    others = (inspect.unwrap(one) for one in vars(cls).values() if inspect.isfunction(one))
    taking = (one for one in others if name in inspect.signature(one).parameters)
    return next(filter(None, (_shape_in(inspect.getdoc(one) or "", name) for one in (forward, *taking))), [])


def _shape_in(text: str, name: str) -> list[str]:
    """Return an argument's dimensions in a documentation; those of the last shape, if there are several."""
    lines = text.splitlines()
    at = next((at for at, line in enumerate(lines) if re.match(rf" *(:param (\w+ )?)?{name}( \(|: *\S)", line)), None)
    if at is None:
        return []
    deep = _indented(lines[at])
    more = takewhile(lambda line: line.strip() and _indented(line) > deep, lines[at + 1 :])
    shapes = [said for line in (lines[at], *more) for said in _SHAPE.findall(line) if not _NO_SHAPE.search(said)]
    return [part.strip() for part in shapes[-1].split(",") if part.strip()] if shapes else []


def _indented(line: str) -> int:
    return len(line) - len(line.lstrip())


def _placed(sample: Tensors, model: nn.Module) -> Tensors:
    parameter = next(model.parameters())
    dtype = getattr(model, "dtype", parameter.dtype)
    here = {name: one.to(parameter.device) for name, one in sample.items()}
    return {name: one.to(dtype) if one.is_floating_point() else one for name, one in here.items()}
