"""Inputs as data: what a test that is written from them calls a model with."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
import torch

from omni_kit.targets.diffusers.transformer.example_inputs import expressions
from omni_kit.toys.batches.denoiser.described import described


def written(value: Any) -> Any:
    """Return what the expression for a value evaluates to."""
    (text,) = expressions({"x": json.loads(json.dumps(described(value)))}, {"x": "hidden_states"}).values()
    return eval(text, {"torch": torch, "generator": torch.Generator().manual_seed(0)})


@pytest.mark.parametrize(
    "value",
    [
        torch.tensor([0.25]),
        torch.tensor(3),
        torch.tensor([[1, 2], [3, 4]]),
        torch.tensor([0.5], dtype=torch.float64),
        torch.tensor([3], dtype=torch.int32),
        torch.tensor([True, False]),
        torch.ones(5, 9),
        torch.zeros(5, 9, dtype=torch.bool),
        torch.full((4, 8), 7),
        torch.zeros(0, 3),
    ],
    ids=str,
)
def test_few_or_equal_numbers_are_the_same(value: torch.Tensor) -> None:
    torch.testing.assert_close(written(value), value, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64])
def test_many_numbers_are_drawn_with_their_shape_and_dtype(dtype: torch.dtype) -> None:
    found = written(torch.linspace(-1, 1, 48).reshape(2, 6, 4).to(dtype))
    assert (found.shape, found.dtype) == ((2, 6, 4), dtype)
    assert len(set(found.flatten().tolist())) > 40


@pytest.mark.parametrize("value", [torch.arange(5, 45), torch.arange(40) > 20], ids=["numbers", "mask"])
def test_whole_numbers_are_drawn_from_the_same_range(value: torch.Tensor) -> None:
    found = written(value)
    assert (found.shape, found.dtype) == (value.shape, value.dtype)
    assert value.min() <= found.min() < found.max() <= value.max()


def test_containers_hold_the_same() -> None:
    value = {"sizes": [torch.tensor([2])], 3: (torch.tensor([1.5]),), "empty": {}, "count": 4, "mode": None}
    found = written(value)
    assert isinstance(found, Mapping)
    assert str(found) == str(value)


def test_tensors_go_to_the_device_and_arguments_have_the_ports_names() -> None:
    inputs = {"x": described(torch.tensor([2])), "mode": described("plain")}
    assert expressions(inputs, {"x": "timestep"}, "torch_device") == {
        "timestep": "torch.tensor([2]).to(torch_device)",
        "mode": "'plain'",
    }


def test_entries_of_a_mapping_that_the_port_takes_by_themselves_have_its_names() -> None:
    one, other = torch.tensor([1]), torch.tensor([2])
    inputs = {"given": described({"seq": one, "size": other}), "whole": described({"seq": one})}
    found = expressions(inputs, {"given{seq}": "encoder_hidden_states", "whole{seq}": "pooled"})
    assert found == {
        "given": "{'size': torch.tensor([2])}",
        "encoder_hidden_states": "torch.tensor([1])",
        "pooled": "torch.tensor([1])",
    }
