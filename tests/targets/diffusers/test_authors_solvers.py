"""The scheduler for a DPM-Solver object of the authors', which goes between the steps of training."""

from pathlib import Path

import pytest

from omni_kit.targets.diffusers.scheduling.authors_process import process_along
from omni_kit.targets.diffusers.scheduling.own_schedulers import DPM_SOLVER
from omni_kit.upstream.repositories.processes.process import Process
from omni_kit.upstream.repositories.reference import find_reference
from tests.conftest import first
from tests.upstream.repositories.test_solver_calls import TWO, WRAPPED, written


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
