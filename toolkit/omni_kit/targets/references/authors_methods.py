"""The authors' own methods that step with a scheduler, run with stand-ins for all but that: traced, or compared."""

import importlib
import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import torch

from omni_kit.targets.diffusers.scheduling.library_scheduler import Installed, walks
from omni_kit.targets.references.authors import Authors
from omni_kit.targets.references.authors_calls import alike, limited, one_value
from omni_kit.targets.references.on_cpu import stay_on_cpu
from omni_kit.targets.references.standing_in import (
    Misshapen,
    Refused,
    StandIn,
    known_by_name,
    sized,
    sizes,
    stand_ins,
    standing,
)
from omni_kit.targets.replacing import replaced
from omni_kit.toys.elapsed import Elapsed
from omni_kit.upstream.repositories.processes.call_arguments import TRAINED
from omni_kit.upstream.repositories.processes.schedule_arguments import IS_TRAINED
from omni_kit.upstream.repositories.reference import find_reference
from omni_kit.upstream.repositories.sampler_step.simulation import DRAWN, MODELS, NOISE, LoopTrace

_LONGEST, _WHOLE = 20.0, 40.0  # seconds of one method, and after which no other one is run
_SCALED = re.compile(
    r"^(cfg|guid(e|ance)|cond|classifier_free_guidance|w)?_?(scale|strength|weight)$|^(cfg|guidance|w)$"
)
_COUNT = re.compile(
    r"^(num_|n_)?((sampling|sample|inference|infer|ddim|ode|euler|denoising|flow)_)?(time)?steps?$|^nfe$"
)
_NOISE = re.compile(r"^((init|initial|start|prior)_?)?(noise|latents?)$")
_PROMPT = "a prompt"
_SIZES = (2, 4)
"""Numbers that stand-ins are, in turn: nothing that is used may depend on them."""
_SCALE, _APART = 3.0, 0.2
_SETTINGS = ("num_inference_steps", "device")
_SAMPLE = {3: (6, 8), 4: (4, 8, 8), 5: (4, 3, 8, 8), 2: (8,)}
_LONG = 50
_OUTPUT = "output_type"


class Output(tuple[Any, ...]):
    """Object that a model returns: the tensor is its first entry, too."""

    @property
    def sample(self) -> Any:
        """The tensor."""
        return self[0]


@dataclass
class Heard:
    """Record of one run of a method.

    Attributes:
        spec: see `trace`.
        noise: [samples, ...], the latents that it begins with.
        steps, scale: the number of steps and the scale of guidance that it receives.
        gives: noise is passed, where the method takes it; else it is drawn.
        answer: of latents, time, whether it is for the prompt, and the other arguments: a tensor of the latents' shape.
        first: the first of two answers is for the prompt; None if none is to guide.
        passed: the model's other arguments.
        counts: how many answers each step asked for.
        stepped: the scheduler; `ended`: the latents after its last step.
        lone: the axis of one place that the model's latents have, and those of the method lack; 0 without one.
    """

    spec: Mapping[str, Any]
    noise: torch.Tensor
    steps: int
    scale: float
    gives: bool
    answer: Callable[[torch.Tensor, Any, bool, Mapping[str, Any]], Any]
    first: bool = True
    twice: bool = True
    passed: dict[str, Any] = field(default_factory=dict)
    counts: list[int] = field(default_factory=list)
    stepped: Any = None
    ended: torch.Tensor | None = None
    told: dict[str, Any] = field(default_factory=dict)
    verdict: bool = False
    asked: str = ""
    lone: int = 0
    _folded: bool = False
    _drawn: bool = False
    _last: tuple[torch.Tensor, torch.Tensor] | None = None

    def run(self, used: Any) -> torch.Tensor:
        """Return the latents that the method ends with.

        Raises:
            Refused: it does what a pipeline cannot repeat.
        """
        self._drawn = self.gives
        made = self.spec["scheduler"]  # diffusers imports its schedulers as they are named
        own = getattr(importlib.import_module(made["module"]), made["name"]) if made is not None else None
        bound = getattr(standing(used, self._missing), self.spec["method"]) if self.spec["owner"] else used
        function = inspect.unwrap(bound)
        with ExitStack() as stack:
            stack.enter_context(replaced(StandIn, "heard", self._heard))
            stack.enter_context(replaced(StandIn, "verdict", False))
            stack.enter_context(self._drawing())
            stack.enter_context(sizes())
            for cls in dict.fromkeys([*_schedulers(), *([own] if own is not None else [])]):
                for name, noted in (("step", self._step), ("set_timesteps", self._set)):
                    if name in vars(cls):
                        stack.enter_context(replaced(cls, name, noted(vars(cls)[name])))
            stack.enter_context(torch.no_grad())
            returned = bound(**dict(self._arguments(function)))
            if inspect.isgenerator(returned):
                for _ in returned:
                    pass
        if self.ended is None or not self.counts:
            raise Refused("takes no step with a scheduler" if self.ended is None else "calls no model that is known")
        return torch.stack(self._unfolded(self.ended)) if self._folded else self.ended

    def _missing(self, name: str) -> Any:
        plain = name.lstrip("_")
        if plain.endswith("scheduler") or "noise_scheduler" in plain:
            return self._scheduler()
        if IS_TRAINED.match(plain):
            return TRAINED
        if _COUNT.match(plain):
            return self.steps
        return self.scale if _SCALED.match(plain) else None

    def _scheduler(self) -> Any:
        made = self.spec["scheduler"]
        if made is None:
            raise Refused("takes a scheduler of which nothing says which one it is")
        return getattr(importlib.import_module(made["module"]), made["name"])(**made["config"])

    def _arguments(self, function: Any) -> Iterator[tuple[str, Any]]:
        """Yield the arguments that the method is called with."""
        for name, one in inspect.signature(function).parameters.items():
            required = one.default is inspect.Parameter.empty
            if one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD) or (name == "self" and required):
                continue
            number = required or one.default is None or type(one.default) in (int, float)
            if name == _OUTPUT:
                yield name, "latent"
            elif number and IS_TRAINED.match(name) and not required:
                continue
            elif number and _COUNT.match(name):
                yield name, self.steps
            elif number and _SCALED.match(name):
                yield name, self.scale
            elif name.endswith("scheduler") and number:
                yield name, self._scheduler()
            elif _NOISE.match(name) and (required or (one.default is None and self.gives)):
                self._drawn = True
                yield name, self.noise.clone()
            elif known_by_name(name) is not None:
                yield name, known_by_name(name)
            elif "prompt" in name and "embed" not in name and (required or (one.default is None and name == "prompt")):
                several = len(self.noise) > 1 and "list" in str(one.annotation).lower()
                yield name, [_PROMPT] * len(self.noise) if several else _PROMPT
            elif required or (one.default is None and name in self.spec["order"] and not name.endswith("kwargs")):
                yield name, StandIn(name)

    @contextmanager
    def _drawing(self) -> Iterator[None]:
        """Let the first draw be the noise."""
        randn, like = torch.randn, torch.randn_like

        def first(*size: Any, **given: Any) -> torch.Tensor:
            shape = given.pop("size", size[0] if len(size) == 1 and not isinstance(size[0], int) else size)
            return self._draw(shape) if not self._drawn else randn(*shape, **given)

        def first_like(tensor: Any, **given: Any) -> torch.Tensor:
            return self._draw(tensor.shape) if not self._drawn else like(tensor, **given)

        with replaced(torch, "randn", first), replaced(torch, "randn_like", first_like):
            yield

    def _draw(self, shape: Any) -> torch.Tensor:
        axes = len(shape) if isinstance(shape, tuple | list) else self.noise.ndim
        self._drawn, self._folded = True, axes == self.noise.ndim - 1
        if self._folded:
            return torch.cat([*self.noise], -1)
        if axes != self.noise.ndim:
            raise Misshapen(f"draws noise with {axes} axes for a model that takes {self.noise.ndim}")
        return self.noise.clone()

    def _unfolded(self, row: torch.Tensor) -> list[torch.Tensor]:
        """Return the samples that lie side by side where the method knows one alone."""
        row = row[0] if row.ndim == self.noise.ndim else row
        return [*row.chunk(len(self.noise), -1)]

    def _step(self, step: Callable[..., Any]) -> Callable[..., Any]:
        def stepped(scheduler: Any, *args: Any, **kwargs: Any) -> Any:
            found = step(scheduler, *args, **kwargs)
            self.stepped = scheduler
            self.ended = found[0] if isinstance(found, tuple) else found if isinstance(found, torch.Tensor) else (
                found.prev_sample)  # fmt: skip
            if isinstance(self.ended, StandIn):
                raise Refused(f"steps with {self.ended}")
            return found

        return stepped

    def _set(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def setting(scheduler: Any, *args: Any, **kwargs: Any) -> Any:
            given = inspect.signature(function).bind(scheduler, *args, **kwargs).arguments
            self.told = {name: one for name, one in [*given.items()][1:] if one is not None and name != "device"}
            StandIn.verdict = self.verdict
            return function(scheduler, *args, **kwargs)

        return setting

    def _heard(self, called: StandIn, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Answer for the model, if that is what is called."""
        order, latents, time = (self.spec[one] for one in ("order", "latents", "time"))
        given = {**dict(zip(order, args, strict=False)), **kwargs}
        if not {latents, time} <= given.keys() or len(args) > len(order):
            return NotImplemented
        x, t = given.pop(latents), given.pop(time)
        name = str(called).rpartition(".")[2]
        method = name in self.spec["methods"] and name != "forward"
        more = sorted(key for key, one in given.items() if key.partition("{")[0] not in order and one is not None)
        if not isinstance(t, torch.Tensor | int | float):
            return NotImplemented
        if any(True for _ in stand_ins([x])):
            raise Refused(f"passes its model {next(stand_ins([x]))} with the latents")
        if not isinstance(_tensor(x), torch.Tensor):
            return NotImplemented
        if method:
            raise Refused(f"samples with {name} of its model")
        if more and not self.spec["takes_more"]:
            raise Refused(f"passes its model {', '.join(more)}, which forward does not take")
        if self.asked not in ("", str(called)):
            raise Refused(f"calls several models: {self.asked}, {called}")
        self.asked = str(called)
        self._keep(given)
        return self._answered(x, t, {key: one for key, one in given.items() if key in order or self.spec["takes_more"]})

    def _keep(self, given: Mapping[str, Any]) -> None:
        """Keep the other arguments.

        Raises:
            Refused: one of them differs between steps.
        """
        for name, one in _flat(given):
            before = self.passed.setdefault(name, one)
            plain = not any(True for _ in stand_ins([before, one]))
            if plain and type(before) is type(one) and not _equal(before, one):
                raise Refused(f"passes its model another {name} in each step")

    def _answered(self, x: Any, t: Any, given: Mapping[str, Any]) -> Any:
        listed = isinstance(x, list | tuple)
        one = _tensor(x)
        self.lone = self.lone or self._lone_axis(one)
        one = one.squeeze(self.lone) if self.lone else one
        whole = self.noise.ndim == one.ndim
        rows = one if whole else one.unsqueeze(0)
        batch = 1 if self._folded else len(self.noise)
        count = len(rows) // batch
        parts = [*rows.split(batch)] if count else []
        if count not in (1, 2) or len(rows) != count * batch:
            raise Refused(f"calls its model on {len(rows)} samples for one")
        if count == 2 and not torch.equal(*parts):
            raise Refused("calls its model with latents of two kinds")
        asked = torch.stack(self._unfolded(parts[0][0])) if self._folded else parts[0]
        if asked.shape != self.noise.shape:
            raise Misshapen(f"passes its model latents of shape {tuple(asked.shape)} for {tuple(self.noise.shape)}")
        times = torch.as_tensor(t).detach().reshape(-1)
        if len(times) not in (1, len(rows)):
            raise Refused("passes its model a step for each token")
        if not bool((times == times[0]).all()):
            raise Refused("tells its model another step for each sample")
        last = self._last is not None and all(map(torch.equal, self._last, (asked, times[:1])))
        self._last = (asked.clone(), times[:1].clone())
        if not last:
            self.counts.append(0)
        found = []
        for _ in range(count):
            number = self.counts[-1]
            self.counts[-1] += 1
            if number > 1:
                raise Refused("calls its model three times in a step")
            prompted = (number == 0) == self.first or not self.twice
            answer = self.answer(asked, times[0], prompted, given)
            found.append(answer)
        return self._returned(found, listed, whole, given)

    def _lone_axis(self, one: torch.Tensor) -> int:
        """Return the axis by which a batch of latents has one more than noise, as films of one frame do."""
        axes = (axis for axis in range(2, one.ndim) if one.shape[axis] == 1) if not self._folded else ()
        return next((axis for axis in axes if one.squeeze(axis).shape[1:] == self.noise.shape[1:]), 0)

    def _returned(self, found: list[Any], listed: bool, whole: bool, given: Mapping[str, Any]) -> Any:
        """Return answers as the model does: in a tuple, an object or a list."""
        rows = []
        for one in found:
            value = one[self.spec["keys"][0]] if isinstance(one, Mapping) else one
            own = _tensor(value[0] if isinstance(value, tuple) else getattr(value, "sample", value))
            own = own.unsqueeze(self.lone) if self.lone and own.ndim == self.noise.ndim else own
            rows += [torch.cat([*own], -1)] if self._folded else [*own]
        form = self.spec["returns"]
        if listed and form == "list":
            return rows
        made = torch.stack(rows) if whole or listed else rows[0]
        if given.get("return_dict") is False or form == "tuple":
            return (made, *[None] * (self.spec["values"] - 1))
        if form == "mapping":
            return {**dict.fromkeys(self.spec["keys"]), self.spec["keys"][0]: made}
        return Output((made,)) if form == "object" else made


def _tensor(value: Any) -> Any:
    """Return a tensor, or those of a list in one."""
    if isinstance(value, list | tuple) and value and all(isinstance(one, torch.Tensor) for one in value):
        return torch.stack([*value])
    return value


def _flat(given: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, one in given.items():
        if isinstance(one, dict):
            yield from ((f"{name}{{{key}}}", value) for key, value in one.items())
        elif one is not None:
            yield name, one


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return one.shape == other.shape and torch.equal(one, other)
    try:
        return bool(one == other)
    except (RuntimeError, ValueError):
        return False


def _schedulers() -> list[type]:
    """Return the schedulers of diffusers' kind that are imported."""
    from diffusers import SchedulerMixin

    found: dict[type, None] = {}
    waiting = [SchedulerMixin]
    while waiting:
        one = waiting.pop()
        if one not in found:
            found[one] = None
            waiting += one.__subclasses__()
    return [*found]


def sampled(
    model: Any, noise: torch.Tensor, steps: int, text: Any, against: Any, scale: float,
    conditions: Mapping[str, Any], spec: Mapping[str, Any],
) -> torch.Tensor:  # fmt: skip
    """Return the latents that the authors' method ends with, where a model takes the place of its own.

    Args:
        text, against: embeddings of the prompt, and of what is guided against.
        conditions: the model's other arguments, by the authors' names.
        scale: of guidance, where 1 makes no difference.
        spec: the method, as `trace` has it; `first`: of two answers the first is for the prompt; `alone`: with a scale
            of 1 it asks once; `more`: by so much its own scale is less; `above`: it guides where the scale is above
            that; `text`, `mask`: the arguments for prompts; `lone`: see `Heard`.
    """

    def answer(x: torch.Tensor, t: torch.Tensor, prompted: bool, given: Mapping[str, Any]) -> Any:
        told = {name: one for name, one in given.items() if not any(True for _ in stand_ins([one]))
                and not isinstance(one, torch.Tensor | dict)}  # fmt: skip
        if spec["text"]:
            told[spec["text"]] = text if prompted else against
        if spec["mask"]:
            told[spec["mask"]] = torch.ones(text.shape[:2], dtype=torch.bool)
        for name in (one for one in conditions if not one.startswith("negative_")):
            value = conditions[name] if prompted else conditions.get(f"negative_{name}", conditions[name])
            holder, _, key = name.rstrip("}").partition("{")
            place = told.setdefault(holder, {}) if key else told
            place[key or holder] = value
        asked = x.unsqueeze(spec["lone"]) if spec["lone"] else x
        return model(**{spec["latents"]: asked, spec["time"]: t.expand(len(x)), **told})

    module = importlib.import_module(spec["module"])
    used = getattr(module, spec["owner"] or spec["method"])
    twice = scale > spec["above"] or not spec["alone"]
    theirs = scale - spec["more"]
    heard = Heard(spec, noise, steps, theirs, spec["gives"], answer, first=spec["first"], twice=twice)
    return heard.run(used)


def trace(request: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what each method did with stand-ins, or why a pipeline cannot repeat it.

    Args:
        request: `reference`, the class as "PATH::Class"; `axes` of latents, in turn; `counts` of steps; `methods`:
            each with its `module`, its class, `owner`, and name, `method`; the `scheduler` that it is given, by
            `module`, `name` and `config`; and of the model's forward `order`, `latents`, `time`, `methods`,
            `takes_more`, and what it `returns`, of how many `values` or of which `keys`.
    """
    stay_on_cpu()
    authors, elapsed = Authors(find_reference(request["reference"])), Elapsed()
    late = {"why": "was not run: those before it took too long"}
    return [late if elapsed.seconds > _WHOLE else _traced(authors, request, one) for one in request["methods"]]


def _traced(authors: Authors, request: Mapping[str, Any], spec: Mapping[str, Any]) -> dict[str, Any]:
    why: list[tuple[bool, bool, str]] = []
    elapsed = Elapsed()
    try:
        with authors.importing_files(), limited(_LONGEST):
            used = getattr(importlib.import_module(spec["module"]), spec["owner"] or spec["method"])
    except Exception as error:  # the authors' own reasons
        return {"why": f"{type(error).__name__}: {error}"}
    for axes, gives in product(request["axes"], (False, True)):
        if why and elapsed.seconds > _LONGEST:
            break
        try:
            with limited(_LONGEST):
                return {**_Traces(request, spec, used, axes, gives).all(), "gives": gives}
        except Exception as error:  # the authors' own reasons
            said = str(error) if isinstance(error, Refused) else f"{type(error).__name__}: {error}"
            why.append((isinstance(error, Misshapen), not isinstance(error, Refused), said))
    return {"why": min(why, key=lambda one: one[:2])[2]}


class _Traces:
    """The runs of one method with several stand-ins for its model."""

    def __init__(
        self, request: Mapping[str, Any], spec: Mapping[str, Any], used: Any, axes: int, gives: bool
    ) -> None:  # fmt: skip
        self.request, self.spec, self.used, self.gives = request, spec, used, gives
        self.noise = torch.full((1, *_SAMPLE[axes]), NOISE)
        self.heard: Heard = Heard(spec, self.noise, 0, 0.0, gives, lambda *_: None)

    def all(self) -> dict[str, Any]:
        """Return the traces, how it guides, and what it passes the model."""
        StandIn.masked = False
        ways = [self.way(count, place) for count in self.request["counts"] for place in range(len(MODELS))]
        heard = self.heard
        passed, masked = heard.passed, StandIn.masked
        last = (self.request["counts"][-1], len(MODELS) - 1)
        with sized(_SIZES[1]):
            again = self.way(*last)
            other = self.heard.passed
        if again != ways[-1]:
            raise Refused("steps as the sizes of what it is given say")
        if self.way(*last, verdict=True) != ways[-1] or self.heard.asked != heard.asked:
            raise Refused("steps in another way where it compares with what it is given")
        constants, conditions, embedded = {}, [], ""
        for name, one in passed.items():
            if isinstance(one, bool | int | float | str) and name in other and _equal(one, other[name]):
                constants[name] = one
            elif isinstance(one, torch.Tensor) and one.numel() == 1 and float(one) == _SCALE:
                embedded = name
            else:
                conditions.append(name)
        cls = type(heard.stepped)
        return {
            "ways": ways, "constants": constants, "conditions": conditions, "embedded": embedded,
            "masked": masked, **self._guides(ways[0]),
            "scheduler": {"module": cls.__module__, "name": cls.__name__, "config": _settings(heard.stepped)},
            "told": _plain({name: one for name, one in heard.told.items() if not isinstance(one, StandIn)}),
            "tables": _tables(heard.stepped), "own": self._own(heard, ways), "lone": heard.lone,
        }  # fmt: skip

    def _own(self, heard: Heard, ways: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
        """Return how the authors' own scheduler takes these steps by itself; None if it does not."""
        cls, config = type(heard.stepped), _settings(heard.stepped)
        if cls not in _schedulers():
            return None
        more = {name: one for name, one in heard.told.items() if name != _SETTINGS[0] and not isinstance(one, StandIn)}
        if not all(isinstance(one, bool | int | float | str) for one in more.values()):
            return None
        known = {name: one for name, one in config.items() if name in inspect.signature(cls.__init__).parameters}
        for whole, negated, rises in ((True, False, False), (False, False, False), (True, True, False),
                                      (False, True, False), (False, False, True)):  # fmt: skip
            one = Installed(cls.__name__, known, whole, rises=rises, negated=negated, by_count=True)
            went = []
            for way in ways:
                scheduler = cls(**known)
                try:
                    scheduler.set_timesteps(way["count"], **more)
                    trace = LoopTrace(None, tuple(map(tuple, way["calls"])), way["ended"], ())
                    went.append(walks(scheduler, one, MODELS[way["model"]], trace))
                except Exception:  # it takes something else
                    went.append(None)
                if went[-1] is None:
                    break
            else:
                return {"config": known, "told": more, "whole": whole, "negated": negated, "rises": rises,
                        "scales": any(went)}  # fmt: skip
        return None

    def way(
        self, count: int, place: int, scale: float = _SCALE, apart: tuple[float, float] = (0.0, 0.0),
        verdict: bool = False,
    ) -> dict[str, Any]:  # fmt: skip
        """Return the calls of one run, and the latents."""
        calls: list[tuple[float, float]] = []

        def answer(x: torch.Tensor, t: torch.Tensor, prompted: bool, given: Mapping[str, Any]) -> torch.Tensor:
            told = (_one(x), float(t) if t.is_floating_point() else int(t))
            if not calls or calls[-1] != told:
                calls.append(told)
            return torch.full_like(x, MODELS[place](*told) + apart[not prompted])

        def drawn(*size: Any, **given: Any) -> torch.Tensor:
            shape = given.pop("size", size[0] if len(size) == 1 and not isinstance(size[0], int) else size)
            return torch.full(tuple(shape), DRAWN)

        def drawn_like(tensor: torch.Tensor, **given: Any) -> torch.Tensor:
            return torch.full_like(tensor, DRAWN)

        self.heard = Heard(self.spec, self.noise, count, scale, self.gives, answer, verdict=verdict)
        with replaced(torch, "randn", drawn), replaced(torch, "randn_like", drawn_like):
            ended = self.heard.run(self.used)
        return {"count": count, "model": place, "calls": calls, "ended": _one(ended)}

    def _guides(self, plain: Mapping[str, Any]) -> dict[str, Any]:
        """Return how two answers are joined by a scale, in which order they are asked for, and whether only one is
        where the scale makes no difference.

        `more` is what the usual scale is more than theirs: 1 of `one + scale * (one - other)`. Above `above`, a usual
        scale, two are asked for.

        Raises:
            Refused: they are joined in another way.
        """
        count, place = plain["count"], plain["model"]
        twice = {*self.heard.counts}
        if twice == {1}:
            return {"guides": False, "first": True, "alone": True, "more": 0, "above": 1}
        ways = []
        for more in (0, 1):
            pair = (_APART, _APART * (_SCALE + more) / (_SCALE + more - 1))
            ways += [(more, first) for first in (True, False)
                     if alike(self.way(count, place, apart=pair if first else pair[::-1]), plain)]  # fmt: skip
        if twice != {2} or len(ways) != 1:
            raise Refused("guides by another formula than the usual one")
        more, first = ways[0]
        unguided = self.way(count, place, scale=1.0 - more)
        asks = {*self.heard.counts}
        if not alike(unguided, plain) or len(asks) != 1:
            raise Refused("goes elsewhere where it does not guide")
        asked = [self._asks(count, place, scale) for scale in (0.5, 1.0)[: 2 * more]]
        if {1} in asked and asked != [{1}] * 2:
            raise Refused("guides above another scale than 0 or 1")
        return {"guides": True, "first": first, "alone": asks == {1}, "more": more, "above": 1 + ({1} in asked)}

    def _asks(self, count: int, place: int, scale: float) -> set[int]:
        """Return how many answers the steps ask for with a scale."""
        self.way(count, place, scale=scale)
        return {*self.heard.counts}


def _one(tensor: torch.Tensor) -> float:
    """Return the one value that every element has.

    Raises:
        Refused: they have several.
    """
    try:
        return one_value(tensor)
    except ValueError as error:
        raise Refused(str(error)) from error


def _settings(scheduler: Any) -> dict[str, Any]:
    """Return what a scheduler was made with: its config, or the attributes that its constructor's arguments became."""
    if isinstance(config := getattr(scheduler, "config", None), Mapping):
        return _plain(config)
    taken, held = inspect.signature(type(scheduler).__init__).parameters, vars(scheduler)
    return _plain({name: held[name] for name in taken if name in held})


def _plain(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that JSON has."""
    return {name: [*map(float, one)] if isinstance(one, list | tuple) or hasattr(one, "tolist") else one
            for name, one in given.items() if not name.startswith("_")
            and (isinstance(one, bool | int | float | str | type(None)) or _is_numbers(one))}  # fmt: skip


def _is_numbers(value: Any) -> bool:
    value = value.tolist() if hasattr(value, "tolist") else value
    return isinstance(value, list | tuple) and all(isinstance(one, int | float) for one in value)


def _tables(scheduler: Any) -> list[list[float]]:
    betas = getattr(scheduler, "betas", None)
    return [betas.tolist()] if isinstance(betas, torch.Tensor) and len(betas) >= _LONG else []
