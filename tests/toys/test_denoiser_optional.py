"""Arguments that a model may go without: those that a part of it refuses, and those that change nothing."""

from functools import lru_cache

import torch

from omni_kit.toys.batches.denoiser import denoiser_inputs
from omni_kit.toys.batches.denoiser.inputs import searched_inputs
from tests.toys.test_denoiser_classes import fed
from tests.toys.test_denoiser_trial import Small


def test_what_a_part_does_not_take_is_left_out_at_once() -> None:
    """Sana passes guidance on to a layer that takes none in its default config."""
    model, _ = fed("SanaTransformer2DModel")
    found = searched_inputs(model)
    assert {"0.encoder_attention_mask", "0.timestep"} <= found.inputs.keys()
    assert "0.guidance" not in found.inputs
    assert found.tried < 40


@lru_cache
def _table(rows: int, columns: int) -> torch.Tensor:
    return (torch.arange(rows)[:, None] * torch.arange(columns) + 1).float().sqrt().cos().sin()


class _Tabled(Small):
    """Makes a table at its first call, and indices where none are given."""

    def forward(
        self, hidden_states: torch.Tensor, timestep: torch.Tensor, frame_indices: torch.Tensor | None = None
    ) -> torch.Tensor:
        """[B, 6, H, W]."""
        rows, columns = hidden_states.shape[-2:]
        if frame_indices is None:
            frame_indices = torch.arange(rows).unsqueeze(0)
        places = _table(rows, columns) + frame_indices.float().mean()
        return hidden_states * places + timestep.float().mean()


def test_what_the_first_call_caches_changes_no_choice() -> None:
    _table.cache_clear()
    first, second = denoiser_inputs(_Tabled()), denoiser_inputs(_Tabled())
    assert first.keys() == second.keys()
    assert all(torch.equal(first[key], second[key]) for key in first)
