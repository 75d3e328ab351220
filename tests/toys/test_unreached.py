"""What a comparison of a toy does not reach."""

from typing import Any

import torch
from torch import nn

from omni_kit.toys.batches.denoiser.unreached import unreached


class Net(nn.Module):
    """Attends to the words behind the first three, of which a toy may have none."""

    def __init__(self) -> None:
        super().__init__()
        self.proj = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor, timestep: torch.Tensor, context: Any = None, mask: Any = None) -> torch.Tensor:
        extra = context[:, 3:].sum(1, keepdim=True) if context is not None else 0
        return torch.as_tensor(self.proj(x) * timestep.view(-1, 1, 1) + extra)


def test_an_input_without_effect_and_an_argument_left_out_are_said() -> None:
    inputs = {"0.x": torch.ones(1, 2, 4), "0.timestep": torch.tensor([0.25]), "0.context": torch.ones(1, 3, 4)}
    without, unread = unreached(Net(), inputs)
    assert without == "forward was called without mask"
    assert unread.startswith("the output of the toy does not depend on context")


def test_nothing_is_said_where_all_is_reached() -> None:
    inputs = {"0.x": torch.ones(1, 2, 4), "0.timestep": torch.tensor([0.25]), "0.context": torch.ones(1, 5, 4)}
    assert unreached(Net(), {**inputs, "0.mask": torch.ones(1, 5, dtype=torch.long)}) == []
