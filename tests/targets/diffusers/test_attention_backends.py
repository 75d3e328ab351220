"""A backend that is set reaches the attention of a model's own file; a library's layers have their own."""

from typing import Any

import pytest
import torch
from diffusers.models.attention_processor import Attention
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

from omni_kit.targets.diffusers.runtime.attention_backends import exercised


class Own(nn.Module):
    """Attention that is written here."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return scaled_dot_product_attention(x, x, x)


class Net(nn.Module):
    """A model of one layer."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer
        self.attn_processors: dict[str, Any] = {}

    def set_attention_backend(self, name: str) -> None:
        """Set nothing: no layer here has a backend."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        answer: torch.Tensor = self.layer(x)
        return answer


@pytest.mark.parametrize("whole", [False, True])
def test_attention_of_a_library_is_named_and_that_of_the_model_is_wrong(whole: bool) -> None:
    library = Attention(query_dim=8, heads=2, dim_head=4)
    model = Net(nn.Sequential(library, Own()) if whole else library)
    called, wrong = exercised(model, lambda: model(torch.randn(1, 3, 8)))
    assert "1 in diffusers, whose own attention has no backends" in called[-1]
    assert [what for what, _ in wrong] == (["set_attention_backend"] if whole else [])
    assert not whole or wrong[0][1].startswith("1 of 2 calls")
