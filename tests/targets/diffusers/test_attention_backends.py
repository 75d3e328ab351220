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


class Shifting:
    """A processor with an argument of its own."""

    def __call__(self, attn: Any, hidden_states: torch.Tensor, shift: torch.Tensor, **given: Any) -> Any:
        return attn.to_q(hidden_states) + shift


class Processed(nn.Module):
    """A model whose attention passes its processors an argument, and which may leave the second one out."""

    def __init__(self, every: bool) -> None:
        super().__init__()
        self.layers: Any = nn.ModuleList(Attention(8, heads=2, dim_head=4, processor=Shifting()) for _ in range(2))
        self.every = every

    @property
    def attn_processors(self) -> dict[str, Any]:
        """Processors, by the names of layers."""
        return {f"layers.{number}.processor": one.processor for number, one in enumerate(self.layers)}

    def set_attn_processor(self, processors: dict[str, Any]) -> None:
        """Set those of all layers."""
        for number, one in enumerate(self.layers):
            one.set_processor(processors[f"layers.{number}.processor"])

    def set_attention_backend(self, name: str) -> None:
        """Set nothing: nothing here computes by a kernel."""

    def forward(self, x: torch.Tensor) -> Any:
        answer, last = self.layers[0](x, shift=x), self.layers[1]
        return last(answer, shift=x) if self.every else last.to_q(answer)


@pytest.mark.parametrize("every", [True, False])
def test_processors_are_called_with_the_arguments_that_they_name(every: bool) -> None:
    model = Processed(every)
    _, wrong = exercised(model, lambda: model(torch.randn(1, 3, 8)))
    idle = [("attn_processors", "1 processors are listed and never called, layers.1.processor first")]
    assert wrong == ([] if every else idle)
    assert {type(one) for one in model.attn_processors.values()} == {Shifting}


class Both:
    """A processor that computes two attentions."""

    def __call__(self, attn: Any, hidden_states: torch.Tensor, other: Any = None, **given: Any) -> Any:
        return attn.to_q(hidden_states) + other.to_q(hidden_states)


class Paired(Processed):
    """A model whose first attention computes the second, too."""

    def __init__(self) -> None:
        super().__init__(True)
        self.layers = nn.ModuleList(Attention(8, heads=2, dim_head=4, processor=Both()) for _ in range(2))

    def forward(self, x: torch.Tensor) -> Any:
        return self.layers[0](x, other=self.layers[1])


def test_an_attention_that_another_processor_is_given_needs_none_of_its_own() -> None:
    model = Paired()
    assert not exercised(model, lambda: model(torch.randn(1, 3, 8)))[1]
