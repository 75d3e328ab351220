"""Arithmetic with plain numbers and with lists of them, where authors have tensors and arrays."""

import math
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

MOST = 4096


class Untold(Exception):
    """A value that source alone does not tell."""


BUILTIN: Mapping[str, Callable[..., Any]] = {
    "len": len, "min": min, "max": max, "float": lambda one: each(float, one), "int": lambda one: each(int, one),
    "abs": lambda one: each(abs, one), "list": list, "tuple": list,
    "range": lambda *given: list(range(*map(int, given)))[:MOST],
    "zip": lambda *lists: list(zip(*lists, strict=False)),
    "enumerate": lambda one: list(enumerate(one)),
    "reversed": lambda one: one[::-1],
    "pairwise": lambda one: list(pairwise(one)),
}  # fmt: skip
"""Functions that need no import, and what they are of numbers."""


def each(compute: Callable[..., Any], *values: Any) -> Any:
    """A computation with numbers, or with every element of vectors.

    Raises:
        Untold: vectors are of several lengths.
    """
    lengths = {len(one) for one in values if isinstance(one, list)}
    if not lengths:
        return compute(*values)
    if len(lengths) > 1:
        raise Untold("vectors of several lengths")
    rows = [one if isinstance(one, list) else [one] * next(iter(lengths)) for one in values]
    return [compute(*row) for row in zip(*rows, strict=True)]


def products(values: list[float]) -> list[float]:
    """Of the first, of the first two, and so on."""
    found, product = [], 1.0
    for value in values:
        product *= value
        found.append(product)
    return found


def linspace(start: float, stop: float, count: int) -> list[float]:
    """So many numbers from one to another, in even steps.

    Raises:
        Untold: they are too many.
    """
    if not 0 < count <= MOST:
        raise Untold("longer than anything that is gone through")
    return [start + (stop - start) * index / max(1, count - 1) for index in range(int(count))]


def arange(*given: float) -> list[float]:
    """Numbers from one to before another, a step apart."""
    start, stop, step = (0, given[0], 1) if len(given) == 1 else (*given[:2], given[2] if len(given) > 2 else 1)
    return [start + step * index for index in range(min(MOST, math.ceil((stop - start) / step)))]


def clamped(values: Any, low: float | None, high: float | None) -> Any:
    """Nothing below one bound and above another; None for no bound."""

    def one(value: float) -> float:
        value = value if low is None or value > low else low
        return value if high is None or value < high else high

    return each(one, values)


def taken(values: Any, place: Any) -> Any:
    """One element, a part, or the elements at several places."""
    if isinstance(place, list):
        return [taken(values, one) for one in place]
    return values[int(place) if isinstance(place, float) and place.is_integer() else place]
