"""einops' functions for several tensors at once, and a check of a tensor's axes."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from einops import rearrange, reduce, repeat


def check_shape(tensor: torch.Tensor, pattern: str, **kwargs: int) -> torch.Tensor:
    """Return a tensor whose axes fit a pattern; einops raises for any other."""
    return rearrange(tensor, f"{pattern} -> {pattern}", **kwargs)


def rearrange_many(tensors: Sequence[torch.Tensor], pattern: str, **kwargs: Any) -> Iterator[torch.Tensor]:
    """Yield each tensor, rearranged by one pattern."""
    return (rearrange(one, pattern, **kwargs) for one in tensors)


def reduce_many(tensors: Sequence[torch.Tensor], pattern: str, **kwargs: Any) -> Iterator[torch.Tensor]:
    """Yield each tensor, reduced by one pattern."""
    return (reduce(one, pattern, **kwargs) for one in tensors)


def repeat_many(tensors: Sequence[torch.Tensor], pattern: str, **kwargs: Any) -> Iterator[torch.Tensor]:
    """Yield each tensor, repeated by one pattern."""
    return (repeat(one, pattern, **kwargs) for one in tensors)
