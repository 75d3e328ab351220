"""Latents that the authors' samplers begin with, and those that they end with, whatever they return."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from omni_kit.targets.replacing import replaced

_CLAMPS = frozenset({"clip", "clamp", "clip_", "clamp_"})


@contextmanager
def noise_first(noise: torch.Tensor, draws: bool = True) -> Iterator[None]:
    """Let the first draw of noise be this one, also where the sampler draws pictures of another size; later draws stay
    as they are.
    """
    left, randn, like, fill = [noise] if draws else [], torch.randn, torch.randn_like, torch.Tensor.normal_

    def first(*size: Any, **given: Any) -> torch.Tensor:
        shape = tuple(size[0]) if len(size) == 1 and not isinstance(size[0], int) else size
        alike = len(shape) == noise.ndim and shape[:1] == noise.shape[:1]
        return left.pop() if left and alike else randn(*size, **given)

    def first_like(tensor: torch.Tensor, **given: Any) -> torch.Tensor:
        return left.pop() if left and tensor.shape == noise.shape else like(tensor, **given)

    def filled_first(tensor: torch.Tensor, *args: Any, **given: Any) -> torch.Tensor:
        fits = left and tensor.shape == noise.shape
        return tensor.copy_(left.pop()) if fits else fill(tensor, *args, **given)

    with (
        replaced(torch, "randn", first), replaced(torch, "randn_like", first_like),
        replaced(torch.Tensor, "normal_", filled_first),
    ):  # fmt: skip
        yield


def latents_of(returned: Any, shape: torch.Size) -> torch.Tensor:
    """Return the latents among what a sampler returns: the last of several steps.

    Raises:
        ValueError: there are none of this shape.
    """
    if isinstance(returned, torch.Tensor):
        if returned.shape == shape:
            return returned
        if returned.shape[1:] == shape:
            return returned[-1]
    parts = [*returned.values()] if isinstance(returned, Mapping) else returned
    if isinstance(parts, list | tuple) and parts:
        for one in reversed(parts) if isinstance(returned, list) else parts:
            try:
                return latents_of(one, shape)
            except ValueError:
                continue
    raise ValueError(f"returns no latents of shape {tuple(shape)}")


class LastClamp(TorchFunctionMode):
    """Keeps what the last clamp receives: pipelines clamp pictures, and scale them, only when they decode them."""

    def __init__(self) -> None:
        super().__init__()
        self._before: torch.Tensor | None = None

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run a function, and note a clamp."""
        if getattr(func, "__name__", "") in _CLAMPS and args:
            self._before = args[0].clone()
        return func(*args, **(kwargs or {}))

    def before(self, latents: torch.Tensor) -> torch.Tensor:
        """Return what the last clamp received, whatever was made of it; latents themselves without a clamp."""
        before = self._before
        return before if before is not None and before.shape == latents.shape else latents


class LastComputed(TorchFunctionMode):
    """Keeps the last tensor that has the shape of latents, whatever a sampler makes of it: a line of sound, a picture
    with other values.
    """

    def __init__(self, shape: torch.Size) -> None:
        super().__init__()
        self.shape = shape
        self.latents: torch.Tensor | None = None

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run a function, and note its result."""
        found = func(*args, **(kwargs or {}))
        if isinstance(found, torch.Tensor) and found.shape == self.shape and found.is_floating_point():
            self.latents = found
        return found


def computed(sampled: Callable[[], Any], shape: torch.Size) -> torch.Tensor:
    """Return the last latents of a sampler that returns something else, or that fails when it makes that: its steps are
    compared.
    """
    with LastComputed(shape) as last:
        try:
            sampled()
        except Exception:
            if last.latents is None:
                raise
    return latents_of(last.latents, shape)


def unclamped(sampled: Callable[[], torch.Tensor]) -> torch.Tensor:
    """Return the latents that a sampler ends with, before it clamps them and makes pictures of them."""
    clamp = LastClamp()
    with clamp:
        latents = sampled()
    return clamp.before(latents)
