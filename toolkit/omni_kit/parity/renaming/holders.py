"""Modules that hold parameters themselves, and what they were fed."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import nn

from omni_kit.parity.compare.trace import Recording
from omni_kit.toys.tensors import Tensors

_CLOSE = 1e-4
_MOST_COLUMNS = 1024


@dataclass(frozen=True)
class Holder:
    """One of upstream's modules.

    Attributes:
        name: its path; empty for the model.
        tensors: what it holds itself, by its own names.
        inputs: the tensors that each of its calls was given; none if it was never called.
        patch: the sides of the patches that it takes, where it is a convolution over patches.
    """

    name: str
    tensors: Mapping[str, torch.Tensor]
    inputs: list[list[torch.Tensor]] = field(default_factory=list)
    patch: tuple[int, ...] = ()

    def at(self, occurrence: int) -> list[torch.Tensor]:
        """Return the inputs of a call; empty if there was no such call."""
        return self.inputs[occurrence] if len(self.inputs) > occurrence else []


def holders_of(state: Tensors, recording: Recording) -> list[Holder]:
    """Return the modules of a recorded model, by what it holds and what went in."""
    held: dict[str, dict[str, torch.Tensor]] = {}
    for name, tensor in state.items():
        path, _, own = name.rpartition(".")
        held.setdefault(path, {})[own] = tensor
    found = {path: Holder(path, own, [], _patch(own)) for path, own in held.items()}
    for call in recording.calls:
        if call.module in found and call.inputs:
            found[call.module].inputs.append([recording.tensors[f"{call.number}.in.{name}"] for name in call.inputs])
    return list(found.values())


def _patch(own: Mapping[str, torch.Tensor]) -> tuple[int, ...]:
    weight = own.get("weight")
    return tuple(weight.shape[2:]) if weight is not None and weight.dim() > 3 else ()


def own_tensors(module: nn.Module) -> dict[str, torch.Tensor]:
    """Return a module's own tensors: parameters, and persistent buffers of floating type."""
    stored = module.state_dict(keep_vars=True)
    return {name: tensor for name, tensor in stored.items() if "." not in name and tensor.is_floating_point()}


def matched(here: torch.Tensor, there: torch.Tensor, patch: tuple[int, ...]) -> bool:
    """Return whether two modules were fed the same numbers, however they are laid out in front of the last axis.

    Args:
        patch: of upstream's module, where it takes whole patches of what it is fed.
    """
    if here.shape == there.shape:
        return _close(here, there)
    if patch and there.dim() == len(patch) + 2 and here.dim() <= 3:
        there = patches(there, patch)
    if here.numel() != there.numel() or here.shape[-1] != there.shape[-1]:
        return False
    return _close(here.reshape(-1, here.shape[-1]), there.reshape(-1, there.shape[-1]))


def order_of_columns(here: torch.Tensor, there: torch.Tensor, patch: tuple[int, ...]) -> list[int] | None:
    """In which order the columns of one stand in the other; None if they are not the same."""
    if patch and there.dim() == len(patch) + 2 and here.dim() <= 3:
        there = patches(there, patch)
    width = here.shape[-1] if here.dim() else 0
    if here.numel() != there.numel() or there.shape[-1] != width or not 1 < width <= _MOST_COLUMNS:
        return None
    mine, theirs = here.reshape(-1, width).float(), there.reshape(-1, width).float()
    places = torch.cdist(mine.T, theirs.T).argmin(dim=1)
    same = len(set(places.tolist())) == width and _close(mine, theirs[:, places])
    return places.tolist() if same else None


def patches(pixels: torch.Tensor, patch: tuple[int, ...]) -> torch.Tensor:
    """[batch, channels, *sides] as [batch, patches, channels * patch]."""
    for axis, size in enumerate(patch):
        if pixels.shape[2 + axis] % size:
            return pixels.new_zeros(0, 1)
        pixels = pixels.unfold(2 + axis, size, size)
    sides = len(patch)
    moved = pixels.permute(0, *range(2, 2 + sides), 1, *range(2 + sides, 2 + 2 * sides))
    return moved.flatten(1 + sides).flatten(1, sides)


def _close(one: torch.Tensor, other: torch.Tensor) -> bool:
    if one.shape != other.shape or not one.is_floating_point():
        return one.shape == other.shape and bool(torch.equal(one, other))
    scale = float(other.abs().max()) if other.numel() else 0.0
    return bool(((one - other).abs() <= _CLOSE * max(scale, 1e-6)).all())
