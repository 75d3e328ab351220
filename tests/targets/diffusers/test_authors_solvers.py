"""The scheduler for a DPM-Solver object of the authors', which goes between the steps of training."""

from pathlib import Path

import pytest

from omni_kit.targets.diffusers.scheduling.authors_process import process_along
from omni_kit.targets.diffusers.scheduling.own_schedulers import DPM_SOLVER
from omni_kit.upstream.repositories.processes.process import Process
from omni_kit.upstream.repositories.reference import find_reference
from tests.conftest import first
from tests.upstream.repositories.test_authors_calls import NET
from tests.upstream.repositories.test_solver_calls import SOLVER, TWO, WRAPPED, written


def process(place: Path, **how: str) -> Process | None:
    return process_along(find_reference(written(place, **how)), {"x": "hidden_states", "t": "timestep"})


@pytest.mark.parametrize(("how", "config"), [
    ({}, {"lower_order_below": 1001}), ({"model": WRAPPED, "last": "True"}, {"lower_order_below": 0}),
    ({"last": "steps >= 10"}, {"lower_order_below": 10}),
])  # fmt: skip
def test_a_solver_is_followed(how: dict[str, str], config: dict[str, int], tmp_path: Path) -> None:
    found = process(tmp_path, **how)
    assert found is not None
    assert (found.scheduler, found.config, found.whole, found.real) == (DPM_SOLVER, config, True, True)
    assert "denoiser.ended(Solver(model_fn=" in found.called


@pytest.mark.parametrize("how", first(1, [
    {"given": "order=2, end=5e-4"},  # times that the scheduler does not have
    {"last": "steps < 8"},  # another limit
    {"told": TWO.replace("config.scale *", "config.scale ** 2 *")},  # another guidance
]))  # fmt: skip
def test_another_way_is_refused(how: dict[str, str], tmp_path: Path) -> None:
    assert process(tmp_path, **how) is None


HOLDER = """
import torch
from torch import nn

from solver import Schedule, Solver, wrapper


class Diffusion(nn.Module):
    def __init__(self, denoise_fn, timesteps=1000):
        super().__init__()
        self.denoise_fn = denoise_fn
        self.register_buffer("betas", torch.linspace(0.0001, 0.02, timesteps))

    def forward(self, condition, infer_speedup=10):
        x = torch.randn(len(condition), 1, 8, condition.shape[2])
        for i in reversed(range(len(self.betas) if infer_speedup < 2 else 0)):
            x = x - self.betas[i] * self.denoise_fn(x, torch.full((len(x),), i))
        schedule = Schedule("discrete", betas=self.betas)
        solver = Solver(wrapper(self.denoise_fn, schedule), schedule)
        return solver.sample(x, steps=len(self.betas) // infer_speedup).flatten(1) * 2
"""


@pytest.mark.sweep
def test_a_solver_in_an_object_is_followed_whose_steps_are_a_part_of_those_of_training(tmp_path: Path) -> None:
    (tmp_path / "solver.py").write_text(SOLVER.replace("LAST", "True"), encoding="utf-8")
    (tmp_path / "holder.py").write_text(HOLDER, encoding="utf-8")
    file = tmp_path / "net.py"
    file.write_text(NET, encoding="utf-8")
    found = process_along(find_reference(f"{file}::Net"), {"x": "hidden_states", "t": "timestep"})
    assert found is not None
    assert (found.scheduler, found.config) == (DPM_SOLVER, {"lower_order_below": 0})
    assert "infer_speedup=1000 // steps" in found.called
