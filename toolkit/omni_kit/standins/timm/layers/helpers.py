"""Sizes as tuples."""

from collections.abc import Iterable
from typing import Any


def to_2tuple(x: Any) -> tuple[Any, ...]:
    """Return rows and columns."""
    return tuple(x) if isinstance(x, Iterable) else (x, x)


def to_3tuple(x: Any) -> tuple[Any, ...]:
    """Return frames, rows and columns."""
    return tuple(x) if isinstance(x, Iterable) else (x, x, x)
