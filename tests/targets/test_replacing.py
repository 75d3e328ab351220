"""Attributes are replaced for a while, and afterwards are what they were."""

import math
from contextlib import suppress
from typing import Any

import pytest
import torch

from omni_kit.targets.replacing import replaced


class _Base:
    def answer(self) -> int:
        return 1


class _Derived(_Base):
    @staticmethod
    def other() -> int:
        return 2


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (math, "pi"),
        (math, "no_such"),
        (_Derived, "answer"),
        (_Derived, "other"),
        (_Derived(), "answer"),
        ({"a": 1}, "a"),
    ],
)
def test_it_is_as_before_even_after_an_error(owner: Any, name: str) -> None:
    own = owner if isinstance(owner, dict) else vars(owner)
    before = dict(own)
    with suppress(ValueError), replaced(owner, name, 5):
        assert own[name] == 5
        raise ValueError
    assert dict(own) == before


def test_a_submodule_comes_back() -> None:
    model, other = torch.nn.Sequential(torch.nn.Linear(2, 3)), torch.nn.Linear(2, 5)
    first = model[0]
    with replaced(model, "0", other):
        assert model[0] is other
    assert model[0] is first
