"""Arithmetic of tensors whose axes have names: `multiply("b n, n d -> b n d", x, y)`."""

import functools
import operator

import torch


def _aligned(pattern: str, tensors: tuple[torch.Tensor, ...]) -> list[torch.Tensor]:
    """Return tensors with every axis of the result, those that they lack with one element."""
    given, arrow, result = pattern.partition("->")
    names = [one.split() for one in given.split(",")]
    axes = result.split() if arrow else max(names, key=len)
    if any(not name.isidentifier() for one in (*names, axes) for name in one):
        raise ValueError(f"the stand-in for einx does not read '{pattern}': install einx")
    found = []
    for own, tensor in zip(names, tensors, strict=True):
        ordered = tensor.permute([own.index(name) for name in axes if name in own])
        found.append(ordered[tuple(slice(None) if name in own else None for name in axes)])
    return found


def multiply(pattern: str, *tensors: torch.Tensor) -> torch.Tensor:
    """Return the product of tensors with the axes that the pattern says."""
    return functools.reduce(operator.mul, _aligned(pattern, tensors))


def add(pattern: str, *tensors: torch.Tensor) -> torch.Tensor:
    """Return the sum of tensors with the axes that the pattern says."""
    return functools.reduce(operator.add, _aligned(pattern, tensors))


def subtract(pattern: str, *tensors: torch.Tensor) -> torch.Tensor:
    """Return the difference of tensors with the axes that the pattern says."""
    return functools.reduce(operator.sub, _aligned(pattern, tensors))
