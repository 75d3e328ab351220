"""Where the elements of a checkpoint go, and the way back."""

import pytest
import torch

from omni_kit.convert.elements import placement_of
from omni_kit.errors import BadInput

SHAPES = {"qkv": [6, 2], "norm": [3], "table": [2, 2]}


def convert(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    q, k, v = tensors["qkv"].chunk(3)
    return {"q": q, "k": k, "v": v.T, "norm": tensors["norm"].flip(0), "rows": tensors["table"].reshape(4, 1)}


def test_what_was_converted_comes_back() -> None:
    given = {name: torch.randn(shape) for name, shape in SHAPES.items()}
    back = placement_of(convert, SHAPES).back(convert(given))
    assert all(torch.equal(back[name], tensor) for name, tensor in given.items())


def test_what_goes_nowhere_is_lost_and_what_goes_twice_doubled() -> None:
    found = placement_of(lambda t: {"q": t["qkv"][:4], "n": t["norm"], "m": t["norm"]}, SHAPES)
    assert found.lost() == ["qkv", "table"]
    assert found.doubled() == ["norm"]
    assert found.sources("m") == ["norm"]
    assert placement_of(convert, SHAPES).lost() == placement_of(convert, SHAPES).doubled() == []


def test_a_part_without_a_gradient_is_zero_and_a_whole_one_left_out() -> None:
    back = placement_of(convert, SHAPES).back({"q": torch.ones(2, 2), "norm": torch.ones(3)})
    assert back.keys() == {"qkv", "norm"}
    assert back["qkv"].sum() == 4


def test_a_conversion_that_computes_is_refused() -> None:
    with pytest.raises(BadInput, match="computes q"):
        placement_of(lambda t: {"q": t["qkv"] * 0.5}, SHAPES)
