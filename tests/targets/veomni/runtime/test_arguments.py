"""Samples as VeOmni's collator gets them, and arguments of forward."""

from typing import Any

import pytest
import torch

from omni_kit.targets.veomni.runtime import arguments
from omni_kit.targets.veomni.runtime.arguments import divided, without_positions
from omni_kit.toys.tensors import Tensors


def row(**pictures: torch.Tensor) -> Tensors:
    ids = torch.tensor([[5, 6, 7]])
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), **pictures}


def test_pictures_of_a_single_row_get_the_dimension_of_rows_where_upstream_requires_it() -> None:
    pixels = torch.ones(2, 3, 4, 4)

    (sample,) = divided(row(pixel_values=pixels, **{"batched.pixel_values": torch.tensor([0, 0])}))

    assert sample["pixel_values"].shape == (1, 2, 3, 4, 4)


def test_a_single_row_in_upstreams_form_stays_as_it_is() -> None:
    given = row(pixel_values=torch.ones(2, 3, 4, 4))

    assert divided(given) == [given]


class Typed(torch.nn.Module):
    """Makes positions from types of tokens."""

    def forward(self, input_ids: Any, mm_token_type_ids: Any = None) -> None:
        """Take them."""


class Untyped(torch.nn.Module):
    """Makes positions without them."""

    def forward(self, input_ids: Any) -> None:
        """Take ids alone."""


@pytest.mark.parametrize(("model", "passed"), [(Typed(), True), (Untyped(), False)])
def test_a_model_that_makes_positions_itself_gets_the_types_of_tokens_that_it_takes(
    model: torch.nn.Module, passed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds = torch.tensor([[0, 1, 0]])
    monkeypatch.setattr(arguments, "arguments", lambda model, inputs: {"position_ids": kinds, "input_ids": kinds})

    fed = without_positions(model, {**row(), "mm_token_type_ids": kinds})

    assert "position_ids" not in fed
    assert ("mm_token_type_ids" in fed) == passed
