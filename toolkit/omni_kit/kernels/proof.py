"""Proves a kernel: compares its outputs and gradients with an independent reference's at the trained width.

Both are fed what the model fed the kernel. What the reference loses in the same dtype is the measure: a kernel may be
off by twice that, or by a few roundings of the dtype, which is what a sum of many rounded parts comes to.
"""

import copy
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn

from omni_kit.kernels.timing import Stopwatch
from omni_kit.targets.sides import KernelCall

_RATIO, _ROUNDINGS = 2.0, 4.0
_EXACT = {torch.float32: torch.float64}
_LEAST = 2.0**-16
_LAPS = 4
Named = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Error:
    """The error of a kernel in one tensor.

    Attributes:
        what: which one.
        kernel, plain: root mean square of the error over that of the exact values; of the kernel, and of the reference
            in the dtype that is trained.
        allowed: how far the kernel may be off.
    """

    what: str
    kernel: float
    plain: float
    allowed: float


def errors_of(call: KernelCall, dtype: torch.dtype) -> list[Error]:
    """Return the errors of all outputs and gradients of one call that the reference has.

    Raises:
        Exception: whatever the kernel raises.
    """
    exact = _answers(call.reference, call, _EXACT.get(dtype, torch.float32))
    plain = _answers(call.reference, call, dtype)
    found = _answers(call.kernel, call, dtype)
    return [_error(name, exact[name], plain[name], found.get(name), dtype) for name in exact]


def milliseconds(call: KernelCall, dtype: torch.dtype, watch: Stopwatch) -> float:
    """Return the time of all calls of this form in a step: forward and backward of the kernel alone."""
    laps = []
    for _ in range(_LAPS):
        feed = _Feed(dtype, call)
        watch.start()
        watch.lap(partial(_ran, call.kernel, feed))
        laps += watch.read()[0]
    return call.times * min(laps)


def _ran(kernel: Callable[..., Any], feed: "_Feed") -> None:
    with torch.enable_grad():
        outputs = [tensor for _, tensor in _outputs(kernel(*feed.args, **feed.kwargs)) if tensor.requires_grad]
    if outputs:
        torch.autograd.backward(outputs, [torch.ones_like(tensor) for tensor in outputs])


def _error(
    name: str, exact: torch.Tensor, plain: torch.Tensor, found: torch.Tensor | None, dtype: torch.dtype
) -> Error:
    lost = _distance(exact, plain)
    allowed = max(_RATIO * lost, _ROUNDINGS * torch.finfo(dtype).eps, _LEAST)
    return Error(name, math.inf if found is None else _distance(exact, found), lost, allowed)


def _distance(exact: torch.Tensor, other: torch.Tensor) -> float:
    if other.shape != exact.shape:
        if other.numel() != exact.numel():
            return math.inf
        other = other.reshape(exact.shape)
    size = float(exact.float().norm())
    error = float((other.to(exact.dtype) - exact).float().norm())
    if not math.isfinite(error):
        return math.inf
    return error / size if size else float(error > 0)


def _answers(function: Callable[..., Any], call: KernelCall, dtype: torch.dtype) -> Named:
    """Answers, and the gradients of what was put in, by name; each run has copies of its own."""
    feed = _Feed(dtype, call)
    with torch.enable_grad():
        outputs = dict(_outputs(function(*feed.args, **feed.kwargs)))
        scalars = [(tensor * _weights(tensor)).sum() for tensor in outputs.values() if tensor.requires_grad]
        if scalars:
            torch.autograd.backward(scalars)
    gradients = {f"gradient of {name}": leaf.grad for name, leaf in feed.leaves.items() if leaf.grad is not None}
    return {name: tensor.detach() for name, tensor in (outputs | gradients).items()}


class _Feed:
    """Copies of a call's arguments, in the dtype where they are floating numbers.

    Attributes:
        args, kwargs: the copies.
        leaves: what can have a gradient, by name.
    """

    def __init__(self, dtype: torch.dtype, call: KernelCall) -> None:
        self._dtype = dtype
        self.leaves: dict[str, torch.Tensor] = {}
        # A weight may come with its module and beside it: a kernel reads the one or the other, and it is one weight.
        self._copied: dict[int, torch.Tensor] = {}
        named = {**{f"argument {number}": value for number, value in enumerate(call.args, 1)}, **call.kwargs}
        modules = {name: self._module(value, name) for name, value in named.items() if isinstance(value, nn.Module)}
        fed = {name: modules[name] if name in modules else self._fed(value, name) for name, value in named.items()}
        self.args = tuple(fed.values())[: len(call.args)]
        self.kwargs = {name: fed[name] for name in call.kwargs}

    def _fed(self, value: Any, name: str) -> Any:
        if isinstance(value, torch.Tensor):
            if not value.is_floating_point():
                return value.clone()
            return self._leaf(value, name).clone()  # a kernel may write over it, which a leaf forbids
        if isinstance(value, nn.Module):
            return self._module(value, name)
        if isinstance(value, (tuple, list)):
            return tuple(self._fed(item, f"{name}[{number}]") for number, item in enumerate(value))
        if isinstance(value, Mapping):
            return {key: self._fed(item, f"{name}.{key}") for key, item in value.items()}
        return value

    def _leaf(self, value: torch.Tensor, name: str) -> torch.Tensor:
        if (own := self._copied.get(id(value))) is not None:
            return own
        leaf = value.detach().to(_wanted(value.dtype, self._dtype)).clone().requires_grad_(value.requires_grad)
        if value.requires_grad:
            self.leaves[name] = leaf
        return leaf

    def _module(self, module: nn.Module, name: str) -> nn.Module:
        copied = copy.deepcopy(module)
        for (part, parameter), own in zip(copied.named_parameters(), module.parameters(), strict=True):
            parameter.data = parameter.data.to(_wanted(parameter.dtype, self._dtype))
            parameter.grad = None
            self.leaves[f"{name}.{part}"] = self._copied[id(own)] = parameter
        return copied


def _wanted(own: torch.dtype, dtype: torch.dtype) -> torch.dtype:
    """Return the dtype of training, unless the tensor's own is more exact."""
    return dtype if torch.finfo(own).eps >= torch.finfo(dtype).eps or own == dtype else own


def _outputs(value: Any, name: str = "answer") -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        yield name, value
    elif isinstance(value, (tuple, list)):
        for number, item in enumerate(value):
            yield from _outputs(item, f"{name} {number + 1}" if number else name)


def _weights(tensor: torch.Tensor) -> torch.Tensor:
    """Return the weights of a gradient: the same for all outputs of this shape, and different for each element."""
    if not tensor.dim():
        return torch.ones_like(tensor)
    generator = torch.Generator(device="cpu").manual_seed(tensor.numel())
    made = torch.randn(tensor.shape, generator=generator).to(torch.bfloat16)
    return made.to(device=tensor.device, dtype=tensor.dtype)
