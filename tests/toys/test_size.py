"""Limits on the size of a toy."""

import pytest
import torch
from torch import nn

from omni_kit.errors import BadInput
from omni_kit.toys.size import another_model, of_toy_size


def half_of_the_limit() -> nn.Module:
    return nn.Linear(10_000, 6_000, bias=False, device=torch.device("meta"))


def test_a_model_is_refused_once_it_is_larger() -> None:
    with pytest.raises(BadInput, match="more than 100 million parameters"), of_toy_size("toy"):
        nn.Sequential(half_of_the_limit(), half_of_the_limit())


def test_models_that_are_tried_one_after_the_other_do_not_add_up() -> None:
    with of_toy_size("toy"):
        for _ in range(3):
            another_model()
            half_of_the_limit()


class Connector(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(half_of_the_limit(), half_of_the_limit())


class Whole(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.connector = Connector()


def test_the_part_that_is_made_is_named_with_the_line_of_the_model_that_makes_it() -> None:
    line = Whole.__init__.__code__.co_firstlineno + 2
    with pytest.raises(BadInput, match=rf"parameters at Connector \(test_size.py:{line}\)$"), of_toy_size("toy"):
        Whole()


class Sized(nn.Module):
    def __init__(self, width: int = 60_000, layers: int = 12, heads: int = 2) -> None:
        super().__init__()
        self.width = width
        self.layers = layers


class Heir(Sized):
    def __init__(self, bias: bool = False, **kwargs: int) -> None:
        super().__init__(**kwargs)
        self.net = nn.Linear(self.width, self.width, bias=bias, device=torch.device("meta"))


def test_the_numbers_of_its_constructors_that_could_be_smaller_are_named() -> None:
    with pytest.raises(BadInput) as caught, of_toy_size("toy"):
        Heir(width=20_000)
    assert str(caught.value.hint).endswith("into it: width=20000, layers=12")
    with pytest.raises(BadInput) as caught, of_toy_size("toy"):
        Whole()
    assert str(caught.value.hint).endswith("into it")
