"""One run of an authors' method that steps with a scheduler, with stand-ins for all but that."""

import importlib
import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from omni_kit.targets.references.standing_in import (
    Misshapen,
    Refused,
    StandIn,
    known_by_name,
    sizes,
    stand_ins,
    standing,
)
from omni_kit.targets.replacing import replaced
from omni_kit.upstream.repositories.processes.call_arguments import COUNT, TRAINED
from omni_kit.upstream.repositories.processes.schedule_arguments import IS_TRAINED

_SCALED = re.compile(
    r"^(cfg|guid(e|ance)|cond|classifier_free_guidance|w)?_?(scale|strength|weight)$|^(cfg|guidance|w)$"
)
_NOISE = re.compile(r"^((init|initial|start|prior)_?)?(noise|latents?)$")
_PROMPT = "a prompt"
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
            for cls in dict.fromkeys([*schedulers_imported(), *([own] if own is not None else [])]):
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
        if COUNT.match(plain):
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
            elif number and COUNT.match(name):
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
            if plain and type(before) is type(one) and not equal(before, one):
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


def equal(one: Any, other: Any) -> bool:
    """Return whether two values are equal; tensors with all elements, and not what cannot be compared."""
    if isinstance(one, torch.Tensor):
        return one.shape == other.shape and torch.equal(one, other)
    try:
        return bool(one == other)
    except (RuntimeError, ValueError):
        return False


def schedulers_imported() -> list[type]:
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
