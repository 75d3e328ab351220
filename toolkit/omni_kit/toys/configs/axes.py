"""Axes of rope in a toy: even, of different sizes, and as much of a head as the real ones are."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

IS_AXES = re.compile(r"^axes_dims?(_rope)?$|^rope_(axes_)?dim(_list)?$")
_PAIR = 2  # rope turns pairs


def fit_axes(toy: dict[str, Any], config: Mapping[str, Any], head: int) -> None:
    """Set the axes of a toy whose heads are `head` wide.

    Axes fill a head: where the real ones do not, one is missing before them, and is added. Where they are more than a
    head they are no parts of it but positions, and stay as they are.
    """
    for key in (key for key in toy if IS_AXES.search(key) and isinstance(toy[key], (list, tuple))):
        real = config[key] or toy[key]
        rest = (_head_dim(config) or sum(real)) - sum(real)
        if rest >= 0:
            toy[key] = type(toy[key])(_axes([rest, *real] if rest else real, head))


def _head_dim(config: Mapping[str, Any]) -> int | None:
    found = config.get("attention_head_dim")
    return found if isinstance(found, int) else None


def _axes(axes: Sequence[int], width: int) -> list[int]:
    """Even axes of different sizes that add up to `width`, in about the proportion of the real ones."""
    found = [max(_PAIR, width * axis // sum(axes) // _PAIR * _PAIR) for axis in axes]
    found[-1] += width - sum(found)
    for _ in axes:
        twins = ((i, j) for j in range(len(found)) for i in range(j) if found[i] == found[j] > _PAIR)
        if (pair := next(twins, None)) is None:
            break
        found[pair[0]] -= _PAIR
        found[pair[1]] += _PAIR
    return found
