"""A loop over steps alone, with a stand-in for the denoiser: what is compared where a scheduler is new."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from omni_kit.targets.references.calls import Asked
from omni_kit.toys.weights import shuffled_ramp

_COUNTS = (5, 9)
_SHAPE = (2, 3, 4, 5)


@dataclass(frozen=True)
class Alone:
    """One run.

    Attributes:
        noise: [pictures, channels, rows, columns].
        text: [pictures, tokens, width]; the stand-in does not read it.
    """

    name: str
    steps: int
    noise: torch.Tensor
    text: torch.Tensor


def runs_alone() -> Iterator[Alone]:
    """The runs of a scheduler."""
    for count in _COUNTS:
        noise = shuffled_ramp(f"scheduler {count}", torch.Size(_SHAPE)) * 2
        yield Alone(f"scheduler alone, {count} steps", count, noise, torch.zeros(_SHAPE[0], 2, 4))


def seeded(number: int) -> None:
    """Noise that steps draw is the same on both sides."""
    torch.manual_seed(number)


def answer(latents: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
    """Of the stand-in: of every element by itself, and of the time."""
    told = time.detach().to(latents).reshape(-1)[0]
    return torch.sin(1.7 * latents) + 0.5 * torch.tanh(told / 100) * latents + 0.3 * torch.sin(told) + 0.1


class StandIn(nn.Module):
    """Takes the place of a model, whatever else that is handed.

    Attributes:
        asked: every call.
    """

    def __init__(self, order: list[str], latents: str, time: str) -> None:
        super().__init__()
        self.order = order
        self.names = (latents, time)
        self.asked = Asked(_SHAPE[0])
        self.weight = nn.Parameter(torch.zeros(1))

    def forward(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        """`answer`, for each picture that is handed."""
        given = {**dict(zip(self.order, args, strict=False)), **kwargs}
        latents, time = given[self.names[0]], torch.as_tensor(given[self.names[1]])
        self.asked.add(latents, time)
        return answer(latents, time)
