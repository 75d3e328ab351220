"""Pairing of module calls: by name, and by their inputs where these come in another order."""

import torch
from torch import nn

from omni_kit.parity.compare.pairing import pair_calls
from omni_kit.parity.compare.trace import Recording, recorded


class Loop(nn.Module):
    """Calls one activation for each row."""

    def __init__(self, order: list[int]) -> None:
        super().__init__()
        self.order = order
        self.act_fn = nn.SiLU()

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return torch.stack([self.act_fn(rows[number]) for number in self.order]).sum(0)


def recording(order: list[int], rows: torch.Tensor) -> Recording:
    with recorded(model := Loop(order)) as found:
        model(rows)
    return found


ROWS = torch.arange(12.0).reshape(3, 4).requires_grad_()


def numbers(candidate: Recording) -> list[int]:
    pairs = pair_calls(recording([0, 1, 2], ROWS), candidate)
    return [pairs["act_fn", occurrence] for occurrence in range(3)]


def test_calls_in_the_same_order_are_paired_in_order() -> None:
    assert numbers(recording([0, 1, 2], ROWS * 1.001)) == [1, 2, 3]


def test_calls_in_another_order_are_paired_by_their_inputs() -> None:
    assert numbers(recording([2, 0, 1], ROWS * 1.001)) == [3, 1, 2]


def test_calls_with_other_inputs_stay_in_order() -> None:
    assert numbers(recording([2, 0, 1], ROWS + 1)) == [1, 2, 3]
    assert numbers(recording([2, 2, 1], ROWS)) == [1, 2, 3]
