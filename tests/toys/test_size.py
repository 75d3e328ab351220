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
