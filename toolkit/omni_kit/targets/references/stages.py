"""Recording of a diffusers pipeline, stage by stage while it runs, whatever the caller."""

import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from omni_kit.targets.sides import stage_name
from omni_kit.toys.tensors import Tensors
from omni_kit.upstream.diffusers.signatures import IS_POSITIONS

_SWITCHES = ("return_dict",)


@dataclass
class Noted:
    """Recording of one call.

    Attributes:
        calls: what the denoiser's forward was called with, call by call.
        samples, steps, guided: what the scheduler received at each step.
        sigmas: of the scheduler.
        latents: what the last step answered.
    """

    calls: list[Mapping[str, Any]] = field(default_factory=list)
    samples: list[torch.Tensor] = field(default_factory=list)
    steps: list[torch.Tensor] = field(default_factory=list)
    guided: list[torch.Tensor] = field(default_factory=list)
    sigmas: torch.Tensor | None = None
    latents: torch.Tensor | None = None

    def named(self, scenario: str, together: bool, negative_first: bool, picture: torch.Tensor) -> Tensors:
        """Return everything by the names of stages.

        Args:
            together: one call of the denoiser is for both answers.
            negative_first: the half, or the call, that is against the prompt is the first one.
        """
        count = len(self.samples[0])
        calls = self.calls[: len(self.calls) // max(1, len(self.steps))]  # those of the first step
        if together and len(calls) == 1 and _size(calls[0]) == 2 * count:
            listed = isinstance(next(iter(calls[0].values())), list)
            halves = (0, count)
            calls = [{name: _half_of(name, one, at, count, listed) for name, one in calls[0].items()} for at in halves]
        if negative_first and len(calls) > 1:
            calls = [calls[1], calls[0]]
        stages: list[tuple[str, torch.Tensor]] = [("noise", self.samples[0]), ("timesteps", torch.stack(self.steps))]
        stages += [("sigmas", self.sigmas)] if self.sigmas is not None else []
        for what, call in zip(("positive", "negative"), calls, strict=False):
            stages += [(f"{what} {name}", tensor) for name, tensor in _tensors(call)]
        stages += [(f"step {number} guided", tensor) for number, tensor in enumerate(self.guided)]
        stages += [("latents", self.latents)] if self.latents is not None else []
        stages.append(("picture", picture))
        return {
            stage_name(scenario, number, name): tensor.detach().clone().contiguous()
            for number, (name, tensor) in enumerate(stages)
        }


@contextmanager
def noting(denoiser_class: type, scheduler_of: Any) -> Iterator[Noted]:
    """Notes every call of a denoiser's forward and of a scheduler's step.

    Args:
        denoiser_class: the class of diffusers whose forward is watched, also where it is a base class that runs.
        scheduler_of: the class of the scheduler that steps.
    """
    noted = Noted()
    forward, step = denoiser_class.forward, scheduler_of.step  # type: ignore[attr-defined]
    signature, taken = inspect.signature(forward), inspect.signature(step)

    def watched(self: Any, *args: Any, **kwargs: Any) -> Any:
        given = signature.bind(self, *args, **kwargs).arguments
        noted.calls.append({name: value for name, value in list(given.items())[1:] if name not in _SWITCHES})
        return forward(self, *args, **kwargs)

    def stepped(self: Any, *args: Any, **kwargs: Any) -> Any:
        given = taken.bind(self, *args, **kwargs).arguments  # some schedulers take more between these three
        noted.samples.append(given["sample"].clone())
        noted.steps.append(torch.as_tensor(given["timestep"]).float().cpu().reshape(-1)[0])  # also one for each picture
        noted.guided.append(given["model_output"].float())
        if noted.sigmas is None and getattr(self, "sigmas", None) is not None:
            noted.sigmas = torch.as_tensor(self.sigmas).float().cpu().clone()
        answer = step(self, *args, **kwargs)
        noted.latents = answer[0] if isinstance(answer, tuple) else answer.prev_sample
        return answer

    # pipelines and frameworks ask what a function takes before they call it
    watched.__signature__, stepped.__signature__ = signature, taken  # type: ignore[attr-defined]
    denoiser_class.forward, scheduler_of.step = watched, stepped  # type: ignore[attr-defined]
    try:
        yield noted
    finally:
        denoiser_class.forward, scheduler_of.step = forward, step  # type: ignore[attr-defined]


def _size(call: Mapping[str, Any]) -> int:
    first = next(iter(call.values()))
    return len(first)


def _half_of(name: str, value: Any, start: int, count: int, listed: bool) -> Any:
    """Return one half of an argument; a table of positions whole, however many rows it has."""
    return value if IS_POSITIONS.search(name) else _half(value, start, count, listed)


def _half(value: Any, start: int, count: int, listed: bool) -> Any:
    """Return one half of a value with rows for both, also within tuples and lists; `listed`: these have an entry for a
    row.
    """
    whole = isinstance(value, list) and all(isinstance(one, torch.Tensor) and len(one) == 2 * count for one in value)
    if isinstance(value, tuple) or (isinstance(value, list) and (len(value) != 2 * count or (whole and not listed))):
        return type(value)(_half(one, start, count, listed) for one in value)
    doubled = isinstance(value, list) or (isinstance(value, torch.Tensor) and value.dim() > 0)
    return value[start : start + count] if doubled and len(value) == 2 * count else value


def _tensors(call: Mapping[str, Any]) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the tensors that a call received, and its numbers; in the order of their names."""
    for name, value in sorted(call.items()):
        if isinstance(value, (list, tuple)):
            for number, one in enumerate(value):
                yield from _tensors({f"{name} {number}": one})
        elif isinstance(value, torch.Tensor):
            yield name, value.float()
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield name, torch.tensor(float(value))
