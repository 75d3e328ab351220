"""A model whose tensors stay on the CPU while it is moved is found without another device."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from omni_kit.targets.diffusers.runtime.another_device import META, moved

Forward = Callable[[nn.Module, torch.Tensor], torch.Tensor]


def scaled(net: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return x * torch.arange(x.shape[-1])


def with_table(net: nn.Module, x: torch.Tensor) -> torch.Tensor:
    found: torch.Tensor = x + net.table  # type: ignore[operator]
    return found


def attending(net: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return nn.functional.scaled_dot_product_attention(x, x, torch.zeros(3, 4))


def following(net: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return x * torch.arange(x.shape[-1], device=x.device) + net.kept  # type: ignore[operator]


def reading(net: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return x[: int(x.max())] + torch.zeros(4)


def made(forward: Forward) -> nn.Module:
    net: Any = type("Net", (nn.Module,), {"forward": forward})()
    net.register_buffer("kept", torch.ones(4))
    net.table = torch.ones(4)  # no buffer: nothing moves it
    one: nn.Module = net
    return one


@pytest.mark.parametrize("forward", [scaled, with_table, attending])
def test_tensors_that_stay_behind_are_named_with_their_line(forward: Forward) -> None:
    model = made(forward)
    x = torch.ones(3, 4, device=META)
    called, ((what, why),) = moved(model, lambda: model(x))
    assert (called, what) == ([], "to")
    assert "on another device than the CPU" in why


@pytest.mark.parametrize(("forward", "called"), [(following, ["to"]), (reading, [])])
def test_a_model_that_follows_its_inputs_is_right_and_one_that_reads_values_is_not_judged(
    forward: Forward, called: list[str]
) -> None:
    model = made(forward)
    x = torch.ones(3, 4, device=META)
    assert moved(model, lambda: model(x)) == (called, [])
