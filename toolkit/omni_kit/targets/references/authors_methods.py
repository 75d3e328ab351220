"""The authors' own methods that step with a scheduler, run with stand-ins for all but that: traced, or compared."""

import importlib
import inspect
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import torch

from omni_kit.targets.diffusers.scheduling.library_scheduler import Installed, walks
from omni_kit.targets.references.authors import Authors
from omni_kit.targets.references.authors_calls import alike, limited, one_value
from omni_kit.targets.references.heard import Heard, equal, schedulers_imported
from omni_kit.targets.references.on_cpu import stay_on_cpu
from omni_kit.targets.references.standing_in import (
    Misshapen,
    Refused,
    StandIn,
    sized,
    stand_ins,
)
from omni_kit.targets.replacing import replaced
from omni_kit.toys.elapsed import Elapsed
from omni_kit.upstream.repositories.reference import find_reference
from omni_kit.upstream.repositories.sampler_step.simulation import DRAWN, MODELS, NOISE, LoopTrace

_LONGEST, _WHOLE = 20.0, 40.0  # seconds of one method, and after which no other one is run
_SIZES = (2, 4)
"""Numbers that stand-ins are, in turn: nothing that is used may depend on them."""
_SCALE, _APART = 3.0, 0.2
_SETTINGS = ("num_inference_steps", "device")
_SAMPLE = {3: (6, 8), 4: (4, 8, 8), 5: (4, 3, 8, 8), 2: (8,)}
_LONG = 50


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
            if isinstance(one, bool | int | float | str) and name in other and equal(one, other[name]):
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
        if cls not in schedulers_imported():
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
