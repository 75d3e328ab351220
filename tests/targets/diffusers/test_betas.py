"""Schedules of diffusers, found by their numbers."""

import pytest
from diffusers import DDIMScheduler

from omni_kit.targets.diffusers.scheduling.betas import schedules_of


@pytest.mark.parametrize("schedule", [
    {"beta_schedule": "scaled_linear", "beta_start": 0.00085, "beta_end": 0.012},
    {"beta_schedule": "squaredcos_cap_v2"},
])  # fmt: skip
@pytest.mark.parametrize("rescaled", [True, False])
def test_betas_that_leave_nothing_are_rescaled_ones(schedule: dict[str, object], rescaled: bool) -> None:
    betas = DDIMScheduler(**schedule, rescale_betas_zero_snr=rescaled).betas.double().tolist()
    told = {**schedule, "num_train_timesteps": 1000, **({"rescale_betas_zero_snr": True} if rescaled else {})}
    assert next(schedules_of("DDIMScheduler", [betas])) == told
