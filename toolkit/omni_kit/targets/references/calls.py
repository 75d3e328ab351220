"""Calls of a denoiser while something samples with it, step by step, whatever the caller."""

import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import wraps
from typing import Any

import torch
from torch import nn

from omni_kit.targets.replacing import replaced
from omni_kit.targets.sides import stage_name
from omni_kit.toys.tensors import Tensors


@dataclass
class RecordedCalls:
    """The calls of one run.

    Attributes:
        pictures: how many are made at once; what is asked for both answers at once has them twice.
        part: where latents are in what the model receives: the axis, the beginning and the width; None for all.
        steps: of each step, the time and the latents.
        answer: what the last call returned, in its form.
    """

    pictures: int
    part: tuple[int, int, int] | None = None
    steps: list[tuple[torch.Tensor, torch.Tensor]] = field(default_factory=list)
    answer: Any = None

    def add(self, latents: torch.Tensor, time: torch.Tensor) -> None:
        """A call; those of one step are told by one time, and passed the same latents."""
        told = time.detach().float().reshape(-1)[0].clone()
        latents = latents if self.part is None else latents.narrow(*self.part)
        handed = latents[: self.pictures].detach().float().clone()
        last = self.steps[-1] if self.steps else None
        if last is None or not torch.equal(last[0], told) or not torch.equal(last[1], handed):
            self.steps.append((told, handed))

    def named(self, run: str, latents: torch.Tensor) -> Tensors:
        """Return everything by the names of stages, and the latents that came of it."""
        stages: list[tuple[str, torch.Tensor]] = []
        for number, (time, before) in enumerate(self.steps):
            stages += [(f"step {number} time", time), (f"step {number} latents", before)]
        stages.append(("final latents", latents.float()))
        return {stage_name(run, place, name): one.contiguous() for place, (name, one) in enumerate(stages)}


def _part(joined: Mapping[str, Any]) -> tuple[int, int, int]:
    """Return where latents are in what they are joined with."""
    axis, parts = joined["axis"], joined["parts"]
    before = sum(joined["conditions"][name][axis] for name in parts[: parts.index("")])
    return axis, before, joined["latents"][axis]


@contextmanager
def asking(
    model: nn.Module, names: Sequence[str], pictures: int, joined: Mapping[str, Any] | None = None
) -> Iterator[RecordedCalls]:
    """Notes the calls of a model's forward.

    Args:
        names: what forward calls latents, and the step.
        joined: what is joined with latents, as a toy records it.
    """
    part = _part(joined) if joined else None
    noted, signature, forward = RecordedCalls(pictures, part), inspect.signature(model.forward), model.forward

    @wraps(forward)
    def asked(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs).arguments
        noted.add(given[names[0]], torch.as_tensor(given[names[1]]))
        noted.answer = forward(*args, **kwargs)
        return noted.answer

    with replaced(model, "forward", asked):  # methods of the model's own ask it, too
        yield noted
