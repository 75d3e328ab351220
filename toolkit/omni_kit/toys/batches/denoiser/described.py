"""Inputs as data, from which a test can be written that makes such inputs."""

from collections.abc import Mapping
from typing import Any

import torch

_WRITTEN_OUT = 16  # values at most: times, labels, sizes


def described(value: Any) -> Any:
    """Return what JSON can hold of an argument of forward, as `as_arguments` gives it.

    Returns:
        Of a tensor: its `shape` and `dtype`; and its `values`, where they are few, its single value as `full`, or the
        `low` and the `high` of its integers. Of a list, a tuple or a dict: an object with `list`, `tuple` or `dict`.
        Of anything else: an object with its `value`.
    """
    if isinstance(value, torch.Tensor):
        return _tensor(value.detach())
    if isinstance(value, Mapping):
        return {"dict": [[key, described(one)] for key, one in value.items()]}
    if isinstance(value, list | tuple):
        return {type(value).__name__: [described(one) for one in value]}
    return {"value": value}


def _tensor(value: torch.Tensor) -> dict[str, Any]:
    said: dict[str, Any] = {"shape": [*value.shape], "dtype": str(value.dtype).removeprefix("torch.")}
    if not value.numel():
        return {**said, "full": 0}
    real = not value.is_complex()
    if real and value.numel() <= _WRITTEN_OUT and bool(value.isfinite().all()):
        return {**said, "values": value.tolist()}
    if real and bool((value == value.flatten()[0]).all()):
        return {**said, "full": value.flatten()[0].item()}
    if real and not value.is_floating_point():
        return {**said, "low": int(value.min()), "high": int(value.max())}
    return said
