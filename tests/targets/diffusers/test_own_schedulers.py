"""Schedulers of our own, against integrals and means that are known."""

import math

import pytest
import torch
from diffusers import DDIMScheduler

from omni_kit.targets.diffusers.scheduling.own_schedulers import (
    ANCESTRAL,
    IMPLICIT,
    RUNGE_KUTTA,
    implicit_settings,
    own_settings,
    written,
)
from omni_kit.targets.diffusers.scheduling.written.ancestral import AncestralScheduler
from omni_kit.targets.diffusers.scheduling.written.implicit import ImplicitScheduler
from omni_kit.targets.diffusers.scheduling.written.runge_kutta import RungeKuttaScheduler
from omni_kit.targets.diffusers.transformer.pipeline import copied_scheduler
from omni_kit.upstream.repositories.sampler_step.simulation import LoopTrace


def along(scheduler: RungeKuttaScheduler, count: int) -> float:
    """Integrate dx/ds = x from level 1 to 0."""
    scheduler.set_timesteps(count)
    x = torch.ones(1, 1, dtype=torch.float64)
    for t in scheduler.timesteps:
        x = scheduler.step(x, t, x, return_dict=False)[0]
    return float(x)


@pytest.mark.parametrize(("method", "calls", "order"), [("euler", 1, 1), ("midpoint", 2, 2), ("heun", 2, 2),
                                                        ("rk4", 4, 4), ("rk4_38", 4, 4)])  # fmt: skip
def test_a_method_has_its_order(method: str, calls: int, order: int) -> None:
    """Twice as many steps leave an error that is smaller by two to the power of the order."""
    scheduler = RungeKuttaScheduler(method=method)
    errors = [abs(along(scheduler, count) - math.exp(-1)) for count in (16, 32)]
    assert len(scheduler.timesteps) == 32 * calls
    assert math.log2(errors[0] / errors[1]) == pytest.approx(order, abs=0.15)


def test_the_last_step_may_be_euler_s() -> None:
    scheduler = RungeKuttaScheduler(method="heun", euler_last=True)
    ended = along(scheduler, 4)
    assert len(scheduler.timesteps) == 7
    assert ended == pytest.approx((1 - 0.25 + 0.25**2 / 2) ** 3 * 0.75)


def test_a_denoiser_that_knows_the_data_is_followed_to_it() -> None:
    """With data of one point the exact denoiser answers it whatever it receives: every path ends there."""
    data, scheduler = 0.5, RungeKuttaScheduler(sigma_data=0.5)
    scheduler.set_timesteps(6)
    assert len(scheduler.timesteps) == 11
    x = torch.full((1, 1), 0.3) * scheduler.init_noise_sigma
    for t in scheduler.timesteps:
        level = float(torch.exp(4 * t))
        total = level**2 + data**2
        received = scheduler.scale_model_input(x, t)
        assert float(received) == pytest.approx(float(x) / total**0.5, rel=1e-5)
        answer = (0.7 - data**2 / total * x) * total**0.5 / (level * data)
        x = scheduler.step(answer, t, x, return_dict=False)[0]
    assert float(x) == pytest.approx(0.7, abs=1e-4)


def test_levels_of_a_velocity_may_begin_and_end_anywhere_and_be_shifted() -> None:
    scheduler = RungeKuttaScheduler(method="euler", first_level=0.9, last_level=0.1, shift=2.0)
    scheduler.set_timesteps(4)
    even = torch.tensor([0.9, 0.7, 0.5, 0.3], dtype=torch.float64)
    assert torch.allclose(scheduler.timesteps.double() / 1000, 2 * even / (1 + even), atol=1e-6)
    x = torch.zeros(1, 1, dtype=torch.float64)
    for t in scheduler.timesteps:
        x = scheduler.step(torch.ones_like(x), t, x, return_dict=False)[0]
    assert float(x) == pytest.approx(0.2 / 1.1 - 1.8 / 1.9)
    way = LoopTrace(1.0, tuple((0.8, float(t) / 1000) for t in scheduler.timesteps), 0.0, (), ())
    config = {"method": "euler", "first_level": 0.9, "last_level": 0.1, "shift": 2.0}
    assert (config, False) in [*own_settings(way, 4)]


def test_another_method_is_refused() -> None:
    with pytest.raises(ValueError, match="must be one of"):
        RungeKuttaScheduler(method="leapfrog")


def test_a_port_gets_a_copy_by_its_own_name() -> None:
    text = copied_scheduler(written(RUNGE_KUTTA), "LittleScheduler")
    assert text is not None
    assert "class LittleScheduler(SchedulerMixin, ConfigMixin):" in text
    assert "omni_kit" not in text
    assert RUNGE_KUTTA not in text
    compile(text, "scheduling_little.py", "exec")


def test_a_copy_has_the_authors_settings_as_its_defaults() -> None:
    text = copied_scheduler(written(RUNGE_KUTTA), "LittleScheduler", {"method": "euler", "last_level": 0.001})
    assert text is not None
    assert 'method: str = "euler",' in text
    assert 'method (`str`, defaults to `"euler"`)' in text
    assert "last_level: float = 0.001," in text
    assert "first_level: float = 1.0," in text
    compile(text, "scheduling_little.py", "exec")


def test_an_ancestral_run_ends_at_what_step_zero_has_noised() -> None:
    """With an exact prediction of the noise, a run of one step ends at the sample after timestep 0."""
    scheduler = AncestralScheduler(num_train_timesteps=10, counts_from_one=True)
    scheduler.set_timesteps(10)
    assert scheduler.timesteps.tolist() == [*range(10, 0, -1)]
    scheduler.set_timesteps(1)
    assert scheduler.timesteps.tolist() == [10]
    clean, noise = torch.full((1, 1), 0.4), torch.full((1, 1), -0.3)
    kept = scheduler.alphas_cumprod
    latents = kept[10] ** 0.5 * clean + (1 - kept[10]) ** 0.5 * noise
    ended = scheduler.step(noise, 10, latents, return_dict=False)[0]
    first = 1 - kept[0]
    beta = 1 - kept[10] / kept[0]
    mean = kept[0] ** 0.5 * beta * clean + (kept[10] / kept[0]) ** 0.5 * first * latents
    assert float(ended) == pytest.approx(float(mean / (1 - kept[10])), rel=1e-5)
    assert len(AncestralScheduler().alphas_cumprod) == 1000
    assert copied_scheduler(written(ANCESTRAL), "OtherScheduler")


@pytest.mark.parametrize("predicts", ["epsilon", "sample", "v_prediction"])
@pytest.mark.parametrize("clips", [False, True])
def test_an_implicit_run_goes_where_ddim_goes(predicts: str, clips: bool) -> None:
    """Both go the same timesteps where their number divides that of the training."""
    more = {"prediction_type": predicts, "clip_sample": clips}
    own, theirs = ImplicitScheduler(**more), DDIMScheduler(**more, timestep_spacing="trailing")
    x = y = torch.randn(1, 2, 3, generator=torch.Generator().manual_seed(0))
    for scheduler in (own, theirs):
        scheduler.set_timesteps(8)
    assert own.timesteps.tolist() == theirs.timesteps.tolist()
    for t in own.timesteps:
        x = own.step(x.sin(), t, x, return_dict=False)[0]
        y = theirs.step(y.sin(), t, y, return_dict=False)[0]
    assert torch.allclose(x, y, atol=1e-5)


@pytest.mark.parametrize("unit", [1, 1000])
def test_an_implicit_run_is_known_by_its_steps_and_betas(unit: int) -> None:
    scheduler = ImplicitScheduler(beta_start=0.001, beta_end=0.01)
    scheduler.set_timesteps(7)
    table = tuple(scheduler.alphas_cumprod.tolist())
    way = LoopTrace(1.0, tuple((0.8, int(t) / unit) for t in scheduler.timesteps), 0.0, (), (table,))
    found = [*implicit_settings(way, 7)]
    assert (0.001, 0.01) in {(one["beta_start"], one["beta_end"]) for one in found}
    assert {one["eta"] for one in found} == {0.0, 1.0}
    later = LoopTrace(1.0, tuple((0.8, (int(t) + 1) / unit) for t in scheduler.timesteps), 0.0, (), (table,))
    assert [*implicit_settings(later, 7)] == []


def test_an_implicit_run_rounds_its_steps_down_and_may_add_noise() -> None:
    scheduler = ImplicitScheduler(eta=1.0, clip_sample=True, use_clipped_model_output=True)
    scheduler.set_timesteps(7)
    assert scheduler.timesteps.tolist() == [999, 856, 713, 570, 427, 284, 141]
    x = torch.full((1, 2), 0.8)
    one, other = (scheduler.step(x, 570, x, torch.Generator().manual_seed(seed), return_dict=False)[0]
                  for seed in (0, 1))  # fmt: skip
    assert not torch.equal(one, other)
    assert torch.equal(scheduler.step(x, 141, x, return_dict=False)[0], scheduler.step(x, 141, x, return_dict=False)[0])
    text = copied_scheduler(written(IMPLICIT), "ShownScheduler")
    assert text is not None
    assert "class ShownScheduler(DDIMScheduler):" in text
