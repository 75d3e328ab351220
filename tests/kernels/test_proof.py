"""Kernels beside references: the right ones pass, and a wrong one is off by more than rounding explains."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from omni_kit.kernels.proof import errors_of, milliseconds
from omni_kit.kernels.stopwatch import WallStopwatch
from omni_kit.targets.sides import KernelCall


def norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return weight * functional.rms_norm(x.float(), (x.shape[-1],), eps=eps).to(x.dtype)


def call(kernel: Callable[..., Any], dtype: torch.dtype = torch.bfloat16) -> KernelCall:
    torch.manual_seed(0)
    x = torch.randn(2, 16, 64, dtype=dtype, requires_grad=True)
    weight = nn.Parameter(torch.rand(64, dtype=dtype) + 0.5)
    return KernelCall("", kernel, norm, (x, weight, 1e-6), {})


def wrong(kernel: Callable[..., Any], dtype: torch.dtype = torch.bfloat16) -> list[str]:
    return [error.what for error in errors_of(call(kernel, dtype), dtype) if not error.kernel <= error.allowed]


def all_in_the_dtype(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return functional.rms_norm(x, (x.shape[-1],), weight, eps)


def without_weight(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return norm(x, torch.ones_like(weight), eps)


def detached_weight(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return norm(x, weight.detach(), eps)


def in_place(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return x.mul_(torch.rsqrt(x.float().square().mean(-1, keepdim=True) + eps).to(x.dtype)) * weight


class _Backward(torch.autograd.Function):
    """The right answer with a gradient that is a tenth too large."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        return gradients[0] * 1.1


def wrong_backward(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return norm(_Backward.apply(x), weight, eps)  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("kernel", [norm, all_in_the_dtype, in_place])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_what_only_rounds_otherwise_is_right(kernel: Callable[..., Any], dtype: torch.dtype) -> None:
    assert wrong(kernel, dtype) == []


def test_what_is_left_out_is_seen() -> None:
    assert "answer" in wrong(without_weight)


def test_a_gradient_that_is_missing_is_wrong() -> None:
    assert wrong(detached_weight) == ["gradient of argument 2"]
    errors = {error.what: error for error in errors_of(call(detached_weight), torch.bfloat16)}
    assert errors["gradient of argument 2"].kernel == math.inf


def test_a_backward_pass_of_its_own_is_looked_at() -> None:
    assert wrong(wrong_backward) == ["gradient of argument 1"]


def test_what_no_gradient_is_asked_of_needs_none() -> None:
    """The model computes cosines without a gradient: a kernel that gives none is right."""
    x, cos = torch.randn(4, 8, requires_grad=True), torch.randn(4, 8)
    turned = KernelCall("", lambda x, cos: x * cos.detach(), lambda x, cos: x * cos, (x, cos), {})
    assert all(error.kernel <= error.allowed for error in errors_of(turned, torch.float32))


def test_the_weights_of_a_module_are_looked_at_too_and_left_as_they_are() -> None:
    module = nn.Linear(8, 8).to(torch.bfloat16)
    before = module.weight.detach().clone()
    x = torch.randn(4, 8, dtype=torch.bfloat16, requires_grad=True)
    broken = KernelCall("", lambda m, x: m(x) * 2, lambda m, x: m(x), (module, x), {})
    found = {error.what: error.kernel for error in errors_of(broken, torch.bfloat16)}
    assert set(found) == {"answer", *(f"gradient of argument {what}" for what in ("1.weight", "1.bias", "2"))}
    assert all(error == pytest.approx(1, abs=0.02) for error in found.values())
    assert module.weight.grad is None
    assert torch.equal(module.weight, before)


def test_an_answer_of_another_shape_or_without_a_number_is_wrong() -> None:
    assert "answer" in wrong(lambda x, weight, eps: norm(x, weight, eps)[:1])
    assert "answer" in wrong(lambda x, weight, eps: norm(x, weight, eps) * math.nan)


class _Sinks(nn.Module):
    """A module whose weight its attention is also given."""

    def __init__(self) -> None:
        super().__init__()
        self.sinks = nn.Parameter(torch.rand(64, dtype=torch.bfloat16) + 0.5)


def _from_the_argument(module: _Sinks, x: torch.Tensor, sinks: torch.Tensor) -> torch.Tensor:
    return x * sinks


def _from_the_module(module: _Sinks, x: torch.Tensor, sinks: torch.Tensor) -> torch.Tensor:
    return x * module.sinks


def _from_neither(module: _Sinks, x: torch.Tensor, sinks: torch.Tensor) -> torch.Tensor:
    return x * sinks.detach()


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        (_from_the_argument, []),
        (_from_the_module, []),
        (_from_neither, ["gradient of argument 1.sinks"]),
    ],
)
def test_a_weight_that_comes_twice_is_one_weight(kernel: Callable[..., Any], expected: list[str]) -> None:
    module, x = _Sinks(), torch.randn(2, 16, 64, dtype=torch.bfloat16, requires_grad=True)
    for reference in (_from_the_argument, _from_the_module):
        caught = KernelCall("", kernel, reference, (module, x), {"sinks": module.sinks})
        errors = errors_of(caught, torch.bfloat16)
        assert [error.what for error in errors if not error.kernel <= error.allowed] == expected


def test_what_a_kernel_takes_in_a_step_counts_every_call() -> None:
    """Each run takes a second by this clock, forward and backward together."""
    ticks = iter(range(1000))
    once = milliseconds(call(norm), torch.bfloat16, WallStopwatch(lambda: next(ticks)))
    often = milliseconds(replace(call(in_place), times=5), torch.bfloat16, WallStopwatch(lambda: next(ticks)))
    assert (once, often) == (1000.0, 5000.0)
