"""A loop worked out with one number as its latents: where it goes with a stand-in for its model. Nothing is run."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from omni_kit.pysource.eval import Frame, Scope, Unsupported
from omni_kit.pysource.eval.python import plain_items
from omni_kit.upstream.repositories.numbers import Numbers
from omni_kit.upstream.repositories.sampler_step.flow import DenoiserCall
from omni_kit.upstream.repositories.sampler_step.outline import DEVICE
from omni_kit.upstream.repositories.sampler_step.split_step import Divided
from omni_kit.upstream.repositories.sampling import STEPS

NOISE, DRAWN = 0.8, 0.37
"""Values of the first noise and of every draw in a step."""
StandIn = Callable[[float, float], float]
_LONG = 50
MODELS: tuple[StandIn, ...] = (
    lambda x, t: 0.4 * x - 0.3 * _part(t) + 0.2,
    lambda x, t: math.sin(1.7 * x) + 0.5 * _part(t) * x,
    lambda x, t: 2.6 + 0.1 * x,
)
"""Linear in the latents, and not; and one whose outputs are larger than anything that would be left as it is."""
_SAME = frozenset({"view", "reshape", "expand", "repeat", "unsqueeze", "squeeze", "flatten"})


def _part(time: float) -> float:
    """Return a step as a part of one, roughly: outputs stay small."""
    return time / 1000 if time > 1 else time


@dataclass(frozen=True)
class LoopTrace:
    """Trace of a loop.

    Attributes:
        begun: what noise is multiplied by; None if only what the model received shows it.
        calls: at each place what the model received, and told.
        ended: the latents.
        levels: what was gone along.
        tables: long lists of numbers that were made on the way, as those of a noise for every step of training.
    """

    begun: float | None
    calls: tuple[tuple[float, float], ...]
    ended: float
    levels: tuple[float, ...]
    tables: tuple[tuple[float, ...], ...] = ()


def trace_of(loop: Divided, steps: int, noise: float, model: StandIn, settings: Mapping[str, Any]) -> LoopTrace | None:
    """Simulate the loop; None if its statements cannot be followed.

    Args:
        settings: of the loop's function.
    """
    walk = _Walk(loop, model, {**settings, loop.sampling.roles[STEPS]: steps, DEVICE: None})
    try:
        return walk.way(noise)
    except (Unsupported, LookupError, ArithmeticError, TypeError, ValueError):
        return None


class _Walk(Frame):
    """One run."""

    def __init__(self, loop: Divided, model: StandIn, names: dict[str, Any]) -> None:
        source = loop.sampling.source
        super().__init__(_Steps(), source.path, source.module, Scope(names), source)
        self.loop = loop
        self.model = model
        self.calls: list[tuple[float, float]] = []

    def way(self, noise: float) -> LoopTrace:
        """From noise to latents."""
        loop, names = self.loop, self.scope.names
        self.run(loop.start)
        factor = _number(self.value(loop.factor)) if loop.factor is not None else 1.0
        names |= {name: self.value(loop.begins(name)) for name in loop.carried}
        names[loop.latents_name] = noise * factor
        levels = names.get(loop.levels) if loop.levels else None
        for head in self.items(loop.along):
            self.bind(loop.target, head)
            self.run(loop.body)
        tables = tuple(table for one in names.values() if len(table := _numbers(one)) >= _LONG)
        return LoopTrace(factor, tuple(self.calls), _number(names[loop.latents_name]), _numbers(levels), tables)

    def run_denoisercall(self, node: DenoiserCall) -> None:
        """The model is asked."""
        time = _number(self.value(node.time))
        self.calls.append((_number(self.value(node.sample)), float(time) if node.real else time))
        self.scope.names[node.answer] = self.model(*self.calls[-1])


class _Steps(Numbers):
    """Numbers, of which one is all latents."""

    def library(self, name: str, *arguments: Any, **keywords: Any) -> Any:
        """See `Numbers`: what else loops do with latents."""
        if "randn" in name:
            return DRAWN
        if name in _SAME:
            return arguments[0]
        if name.startswith("new_"):
            return super().library(name.removeprefix("new_"), *arguments[1:], **keywords)
        if name in ("full", "full_like"):
            return keywords.get("fill_value", arguments[-1])
        if name in ("ones_like", "zeros_like"):
            return float(name == "ones_like")
        return super().library(name, *arguments, **keywords)


def _number(value: Any) -> Any:
    """Return a number, also of a vector that is no longer."""
    if isinstance(value, np.ndarray):
        return value.item()
    if not isinstance(value, int | float):
        raise Unsupported("has no number for latents or a step")
    return value


def _numbers(value: Any) -> tuple[float, ...]:
    """Return the numbers of a vector or a list; none of anything else."""
    found = (
        value.tolist() if isinstance(value, np.ndarray) else plain_items(value) if isinstance(value, range) else value
    )
    return tuple(found) if isinstance(found, list) and all(isinstance(one, int | float) for one in found) else ()
