"""Runs of a sampler: noise as a model takes it, and a condition only where it takes one."""

import torch
from torch import nn

from omni_kit.toys.batches.denoiser.sizes import ARGUMENTS
from omni_kit.toys.batches.sampling import NAMES, SamplingBatchBuilder, drawn_of


class Listed(nn.Module):
    """Latents of several sizes, one by one."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(4, 4, 1)
        setattr(self, ARGUMENTS, {NAMES: {"x": "hidden_states", "t": "timestep"}})

    def forward(self, x: list[torch.Tensor], t: torch.Tensor) -> list[torch.Tensor]:
        assert isinstance(x, list)
        return [self.layer(one) * t[place] for place, one in enumerate(x)]


class Plain(Listed):
    """Latents in one tensor."""

    def forward(self, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        answer: torch.Tensor = self.layer(x) * t[:, None, None, None]
        return answer


def runs(model: nn.Module) -> list[tuple[int, ...]]:
    drawn = drawn_of(SamplingBatchBuilder().batch(model, lambda batch: batch))
    assert all(one.text.shape == (len(one.noise), 1, 1) for one in drawn)
    return [tuple(one.noise.shape) for one in drawn]


def test_latents_that_are_passed_one_by_one_are_drawn_together() -> None:
    assert {len(one) for one in runs(Listed())} == {len(one) for one in runs(Plain())} == {4}


def test_several_pictures_are_drawn_at_once() -> None:
    assert {one[0] for one in runs(Plain())} == {1, 2, 4}


class Longer(Listed):
    """Rows whose length the model halves and doubles: an odd length grows by one."""

    def forward(self, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        half = self.layer(x)[..., ::2] * t[:, None, None, None]
        answer: torch.Tensor = half.repeat_interleave(2, -1)
        return answer


def test_nothing_is_sampled_at_a_size_that_a_step_changes() -> None:
    sizes = {one[1:] for one in runs(Longer())}
    assert all(size[-1] % 2 == 0 for size in sizes)
    assert len({one[1:] for one in runs(Plain())}) == 2
