"""What is noted of a pipeline while it runs."""

from typing import Any

import torch

from omni_kit.targets.references.stages import _half, _half_of, noting


def test_layers_that_hold_both_halves_are_halved_each() -> None:
    layers = [torch.arange(12.0).reshape(4, 3) + number for number in range(4)]  # as many as rows of both halves
    found = _half(layers, 2, 2, listed=False)
    assert len(found) == 4
    assert torch.equal(found[1], layers[1][2:])


def test_a_list_with_an_entry_for_each_row_is_halved_itself() -> None:
    rows = [torch.full((4, 2), float(number)) for number in range(4)]
    assert [int(one[0, 0]) for one in _half(rows, 2, 2, listed=True)] == [2, 3]


def test_tables_in_a_tuple_stay_whole_and_conditions_in_one_are_halved() -> None:
    cosines, sines = torch.ones(16, 8), torch.zeros(16, 8)
    kept = _half((cosines, sines), 0, 1, listed=False)
    assert kept[0] is cosines
    assert kept[1] is sines
    assert _half((torch.ones(2, 8),), 0, 1, listed=False)[0].shape == (1, 8)


def test_a_table_of_positions_as_long_as_both_halves_stays_whole() -> None:
    table = torch.ones(2, 8)
    assert _half_of("image_rotary_emb", table, 0, 1, listed=False) is table
    assert _half_of("encoder_hidden_states", table, 0, 1, listed=False).shape == (1, 8)


class _Stepped:
    def forward(self, x: Any) -> Any:
        return x

    def step(self, model_output: Any, old: Any, timestep: Any, timestep_back: Any, sample: Any) -> Any:
        return (sample - model_output,)


def test_a_scheduler_may_take_more_between_the_output_and_the_latents() -> None:
    with noting(_Stepped, _Stepped) as noted:
        _Stepped().step(torch.ones(1), None, 7, None, torch.zeros(1))
    assert [float(one) for one in noted.steps] == [7.0]
    assert torch.equal(noted.samples[0], torch.zeros(1))
    assert noted.latents is not None
    assert torch.equal(noted.latents, -torch.ones(1))
