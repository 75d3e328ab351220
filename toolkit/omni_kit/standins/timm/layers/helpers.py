"""Sizes as tuples, and how weights begin."""

from collections.abc import Iterable
from typing import Any

import torch


def to_1tuple(value: Any) -> tuple[Any, ...]:
    """Return a tuple of one size."""
    return tuple(value) if isinstance(value, Iterable) else (value,)


def to_2tuple(value: Any) -> tuple[Any, ...]:
    """Return rows and columns."""
    return tuple(value) if isinstance(value, Iterable) else (value, value)


def to_3tuple(value: Any) -> tuple[Any, ...]:
    """Return frames, rows and columns."""
    return tuple(value) if isinstance(value, Iterable) else (value, value, value)


def trunc_normal_(
    tensor: torch.Tensor, mean: float = 0.0, std: float = 1.0, a: float = -2.0, b: float = 2.0
) -> torch.Tensor:
    """Fill a tensor from a normal distribution that is cut off at `a` and `b`."""
    return torch.nn.init.trunc_normal_(tensor, mean, std, a, b)
