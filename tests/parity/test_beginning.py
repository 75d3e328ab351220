"""How a model begins, and what it drops: judged by statistics and shares, for nobody draws the same numbers."""

import torch

from omni_kit.parity.compare.beginning import differently_begun
from omni_kit.parity.processes.steps.beginning import memory_filled
from omni_kit.toys.configs.noise import with_noise
from omni_kit.toys.tensors import Tensors


def drawn(seed: int, spread: float = 0.02, mean: float = 0.0) -> torch.Tensor:
    return mean + spread * torch.randn(96, 40, generator=torch.Generator().manual_seed(seed))


def begun(candidate: torch.Tensor, reference: torch.Tensor, buffers: tuple[str, ...] = ()) -> list[str]:
    first: Tensors = {"weight": reference}
    return differently_begun(first, {"weight": candidate}, buffers)


def test_other_numbers_of_the_same_chance_are_no_difference() -> None:
    assert not any(begun(drawn(seed), drawn(seed + 100)) for seed in range(50))


def test_another_spread_mean_or_constant_is_said() -> None:
    assert "begins with mean" in begun(drawn(1, 0.024), drawn(2))[0]
    assert "mean" in begun(drawn(1, mean=0.01), drawn(2))[0]
    assert begun(torch.zeros(8), torch.ones(8)) == ["weight begins as 0 everywhere instead of 1 everywhere"]
    assert "begins as 0 everywhere instead of mean" in begun(torch.zeros(96, 40), drawn(1))[0]


def test_a_row_that_is_not_zeroed_is_a_difference() -> None:
    padded = drawn(1)
    padded[0] = 0
    assert begun(drawn(2), padded)
    assert not begun(padded.clone(), padded)


def test_buffers_are_computed_and_compared_number_by_number() -> None:
    steps = torch.arange(8.0)
    assert begun(steps.flip(0), steps, ("weight",)) == ["weight holds other numbers"]
    assert not begun(steps + 1e-8, steps, ("weight",))


def test_what_nobody_initialises_is_seen_and_excused_where_upstream_does_not_either() -> None:
    with memory_filled():
        unset = torch.empty(8)
    assert bool(unset.isnan().all())
    assert "uninitialised memory" in begun(unset, torch.ones(8))[0]
    assert not begun(torch.ones(8), unset)
    assert not torch.are_deterministic_algorithms_enabled()


def test_every_share_of_dropout_is_switched_on_and_no_two_are_alike() -> None:
    config = {"attention_dropout": 0.0, "vision": {"hidden_dropout": 0.0, "layerdrop": 0.0, "depth": 2}, "eps": 1e-6}
    made, count = with_noise(config)
    shares = [made["attention_dropout"], made["vision"]["hidden_dropout"]]
    assert count == 2
    assert len({*shares}) == 2
    assert all(0 < share < 1 for share in shares)
    assert (made["eps"], made["vision"]["layerdrop"]) == (1e-6, 0.0)
    assert with_noise({"eps": 1e-6})[1] == 0
