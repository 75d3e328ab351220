"""A loop over steps alone, with a stand-in for the denoiser: what is compared where a scheduler is new."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count as numbers
from typing import Any

import torch
from torch import nn

from omni_kit.targets.references.calls import RecordedCalls
from omni_kit.targets.replacing import replaced
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


@contextmanager
def rows_alike(number: int) -> Iterator[None]:
    """Noise is drawn by rows: a side that draws for twice the batch, or with other axes, draws alike for a sample."""
    drawn, real = numbers(), torch.randn

    def noise(*size: Any, **given: Any) -> torch.Tensor:
        shape = tuple(size[0]) if len(size) == 1 and not isinstance(size[0], int) else size
        random = torch.Generator().manual_seed(1000 * number + next(drawn))
        rows = real(shape[:1], generator=random).tolist() if shape else [0.0]
        kept = {name: given[name] for name in ("dtype", "device") if given.get(name) is not None}
        found = torch.zeros(shape, **kept)
        for place, value in enumerate(rows):
            found[place] += value
        return found

    def alike(tensor: torch.Tensor, **given: Any) -> torch.Tensor:
        return noise(tensor.shape, **{"dtype": tensor.dtype, "device": tensor.device, **given})

    def filled(tensor: torch.Tensor, mean: float = 0.0, std: float = 1.0, **_: Any) -> torch.Tensor:
        return tensor.copy_(mean + std * alike(tensor))

    with (
        replaced(torch, "randn_like", alike), replaced(torch, "randn", noise),
        replaced(torch.Tensor, "normal_", filled),
    ):  # fmt: skip
        yield


def answer(latents: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
    """Of the stand-in: of every element by itself, and of the time."""
    told = time.detach().to(latents).reshape(-1)[0]
    return torch.sin(1.7 * latents) + 0.5 * torch.tanh(told / 100) * latents + 0.3 * torch.sin(told) + 0.1


class StandIn(nn.Module):
    """Takes the place of a model, whatever else that receives.

    Args:
        form: what the model returns: a tensor, or what holds one.

    Attributes:
        calls: every call.
    """

    def __init__(self, order: list[str], latents: str, time: str, form: Any = None) -> None:
        super().__init__()
        self.form = form
        self.order = order
        self.names = (latents, time)
        self.calls = RecordedCalls(_SHAPE[0])
        self.weight = nn.Parameter(torch.zeros(1))

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """`answer`, for each picture that receives, in the model's form."""
        given = {**dict(zip(self.order, args, strict=False)), **kwargs}
        latents, time = given[self.names[0]], torch.as_tensor(given[self.names[1]])
        self.calls.add(latents, time)
        return _in_form(self.form, answer(latents, time))


def _in_form(form: Any, tensor: torch.Tensor) -> Any:
    """Return a tuple, a list or a mapping whose first entry is this tensor; the tensor for any other form."""
    if isinstance(form, Mapping):
        return {**form, next(iter(form), ""): tensor}
    return type(form)((tensor, *form[1:])) if type(form) in (tuple, list) else tensor
