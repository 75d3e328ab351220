"""Samples as VeOmni's collator gets them."""

import torch

from omni_kit.targets.veomni.runtime.arguments import divided
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
