"""Slices as xformers makes them."""

import torch


def unbind(x: torch.Tensor, dim: int) -> tuple[torch.Tensor, ...]:
    """Return the slices of a tensor along an axis, which share its memory."""
    return x.unbind(dim)
