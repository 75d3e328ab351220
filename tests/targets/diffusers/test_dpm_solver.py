"""The scheduler that solves diffusion ODEs between the steps of training, against a solution that is known."""

import math

import pytest
import torch

from omni_kit.targets.diffusers.scheduling.own_schedulers import DPM_SOLVER, written
from omni_kit.targets.diffusers.scheduling.written.dpm_solver import ContinuousDPMSolverScheduler
from omni_kit.targets.diffusers.transformer.pipeline import copied_scheduler

DATA = 0.5
"""Standard deviation of the data: a sample of it keeps its number of standard deviations on the whole way."""


def error(scheduler: ContinuousDPMSolverScheduler, count: int) -> float:
    """Return how far a run ends from where the exact one ends."""
    scheduler.set_timesteps(count)
    whole = [math.sqrt((alpha * DATA) ** 2 + sigma**2) for alpha, sigma, _ in scheduler._levels]
    x = torch.ones(1, 1, dtype=torch.float64) * whole[0]
    for (alpha, sigma, _), size, t in zip(scheduler._levels, whole, scheduler.timesteps, strict=False):
        noise = sigma / size**2 * x
        answer = alpha * noise - sigma * (x - sigma * noise) / alpha
        answer = noise if scheduler.config.prediction_type == "epsilon" else answer
        x = scheduler.step(answer, t, x, return_dict=False)[0]
    return abs(float(x) - whole[-1])


@pytest.mark.parametrize("algorithm", ["dpmsolver++", "dpmsolver"])
@pytest.mark.parametrize("method", ["multistep", "singlestep"])
@pytest.mark.parametrize("order", [1, 2, 3])
def test_a_solver_has_its_order(algorithm: str, method: str, order: int) -> None:
    """Twice as many steps leave an error that is smaller by about two to the power of the order.

    The first step of several ones has order 1, and an error of order 2.
    """
    scheduler = ContinuousDPMSolverScheduler(
        algorithm_type=algorithm, method=method, solver_order=order, spacing="logsnr", lower_order_below=0,
        prediction_type="v_prediction",
    )  # fmt: skip
    errors = [error(scheduler, count) for count in (121, 241)]
    least = min(order, 2) if method == "multistep" else order
    assert math.log2(errors[0] / errors[1]) > least - 0.15


def test_calls_go_along_one_line_of_times() -> None:
    scheduler = ContinuousDPMSolverScheduler(method="singlestep", solver_order=3)
    scheduler.set_timesteps(4)
    assert scheduler.timesteps.tolist() == pytest.approx([999, 749.25, 499.5, 249.75])
    assert [order for _, order in scheduler._plan] == [3, 3, 3, 1]
    scheduler.set_timesteps(6)
    assert [order for _, order in scheduler._plan] == [3, 3, 3, 2, 2, 1]


def test_short_runs_end_with_lower_orders() -> None:
    scheduler = ContinuousDPMSolverScheduler(solver_order=3, lower_order_below=6)
    scheduler.set_timesteps(5)
    assert [order for _, order in scheduler._plan] == [1, 2, 3, 2, 1]
    scheduler.set_timesteps(6)
    assert [order for _, order in scheduler._plan] == [1, 2, 3, 3, 3, 3]


def test_another_choice_is_refused() -> None:
    with pytest.raises(ValueError, match="must be one of"):
        ContinuousDPMSolverScheduler(method="adaptive")


def test_a_port_gets_a_copy_by_its_own_name() -> None:
    text = copied_scheduler(written(DPM_SOLVER), "LittleScheduler")
    assert text is not None
    assert "class LittleScheduler(SchedulerMixin, ConfigMixin):" in text
    assert "_CHOICES" in text
    assert DPM_SOLVER not in text
    compile(text, "scheduling_little.py", "exec")
