"""The stand-in for a model in a loop over steps."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from omni_kit.targets.references.stepping import StandIn, answer


@pytest.mark.parametrize(("form", "taken"), [
    (None, lambda found: found), (torch.zeros(2), lambda found: found), ((torch.zeros(2), 3), lambda found: found[0]),
    ([torch.zeros(2)], lambda found: found[0]),
    ({"sample": torch.zeros(2), "loss": None}, lambda found: found["sample"]),
], ids=["unknown", "tensor", "tuple", "list", "mapping"])  # fmt: skip
def test_it_answers_in_the_form_of_the_model(form: Any, taken: Callable[[Any], torch.Tensor]) -> None:
    latents, time = torch.linspace(-1, 1, 6).reshape(2, 3), torch.tensor(7)
    found = StandIn(["x", "t"], "x", "t", form)(latents, t=time)
    assert torch.equal(taken(found), answer(latents, time))
    assert type(found) is (torch.Tensor if form is None else type(form))
