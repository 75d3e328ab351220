"""Calls of the authors' DPM-Solver objects, each written as one expression."""

from pathlib import Path

import pytest

from omni_kit.upstream.repositories.processes.sampler_call import AuthorsCall
from omni_kit.upstream.repositories.processes.solver_calls import solver_calls
from omni_kit.upstream.repositories.reference import find_reference
from tests.upstream.repositories.test_authors_calls import NET

SOLVER = '''
import torch


class Schedule:
    def __init__(self, kind="discrete", betas=None):
        self.logs = (0.5 * torch.log(1 - betas).cumsum(0)).reshape(1, -1).double()
        self.times = torch.linspace(0, 1, len(betas) + 1, dtype=torch.float64)[1:]

    def log_alpha(self, t):
        at = (t * len(self.times) - 1).clamp(0, len(self.times) - 1)
        low = at.floor().long().clamp(max=len(self.times) - 2)
        first, second = self.logs[0][low], self.logs[0][low + 1]
        return first + (at - low) * (second - first)


def wrapper(model, schedule, guidance_type="none", condition=None, unconditional_condition=None,
            guidance_scale=1.0, model_kwargs={}):
    def asked(x, t):
        told = ((t - 1 / len(schedule.times)) * 1000).expand(len(x)).float()
        if guidance_type == "none" or unconditional_condition is None:
            return model(x, told, **model_kwargs)
        both = model(torch.cat([x, x]), torch.cat([told, told]),
                     torch.cat([unconditional_condition, condition]), **model_kwargs)
        other, one = both.chunk(2)
        return other + guidance_scale * (one - other)

    return asked


class Solver:
    """Steps of the first or the second order, of denoised samples."""

    def __init__(self, model_fn, schedule, clean=False):
        self.model, self.schedule = model_fn, schedule

    def levels(self, t):
        log = self.schedule.log_alpha(t)
        sigma = torch.sqrt(1 - torch.exp(2 * log))
        return log.exp(), sigma, log - sigma.log()

    def sample(self, x, steps=20, order=2, skip_type="time_uniform", method="multistep", end=1e-3):
        """Sample."""
        times = torch.linspace(1, end, steps + 1, dtype=torch.float64)
        before = None
        for at in range(steps):
            (a, s, r), (b, z, q) = self.levels(times[at]), self.levels(times[at + 1])
            now = (x - s * self.model(x, times[at])) / a
            kept = -torch.expm1(r - q) * b
            moved = z / s * x + kept * now
            if before is not None and order == 2 and (at < steps - 1 or LAST):
                moved = moved + 0.5 * kept * (now - before[0]) * (q - r) / (r - before[1])
            before, x = (now, r), moved.float()
        return x
'''
SCRIPT = """
import torch

from net import Net
from solver import Schedule, Solver, wrapper


def betas_of(count=1000):
    return torch.linspace(0.0001, 0.02, count)


def generate(config, device="cuda"):
    net = Net()
    betas = betas_of()
    TOLD

    def run(noise, count, **kwargs):
        schedule = Schedule("discrete", betas=betas.to(device))

        def model_fn(x, t):
            t = t * len(betas) - 1
            return guided(x, t.expand(len(x)).float(), **kwargs)

        solver = Solver(MODEL, schedule, clean=True)
        return solver.sample(noise, steps=count, GIVEN)

    return run(torch.randn(1, 4, 8, 8), config.steps)
"""
ONE = "guided = net"
TWO = """def guided(x, t, y):
        one = net(x, t, y)
        other = net(x, t, torch.zeros_like(y) + config.classes)
        return one + config.scale * (one - other)
"""
WRAPPED = (
    "wrapper(net, schedule, guidance_type='free', condition=config.y, unconditional_condition=config.none, "
    "guidance_scale=config.cfg, model_kwargs=kwargs)"
)


def written(place: Path, told: str = TWO, model: str = "model_fn", given: str = "order=2", last: str = "False") -> str:
    """Write the files, and return the class."""
    (place / "net.py").write_text(NET, encoding="utf-8")
    (place / "solver.py").write_text(SOLVER.replace("LAST", last), encoding="utf-8")
    text = SCRIPT.replace("TOLD", told).replace("MODEL", model).replace("GIVEN", given)
    (place / "generate.py").write_text(text, encoding="utf-8")
    return f"{place / 'net.py'}::Net"


def found(place: Path, **how: str) -> list[AuthorsCall]:
    return solver_calls(find_reference(written(place, **how)))


def test_what_is_assigned_first_is_written_in(tmp_path: Path) -> None:
    (one,) = found(tmp_path, told="def guided(x, t, y=None):\n        return net(x, t, y)")
    assert one.called == (
        "Solver(model_fn=lambda x, t: denoiser(x, (t * len(betas_of()) - 1).expand(len(x)).float()), "
        "schedule=Schedule('discrete', betas=betas_of().to(begun.device)), clean=True)"
        ".sample(x=begun, steps=steps, order=2)"
    )
    assert (one.name, one.guided) == ("Solver", "")
    assert {*one.parts} == {("solver", "Schedule"), ("generate", "betas_of")}


def test_the_authors_guidance_is_written_with_its_scale(tmp_path: Path) -> None:
    (one,) = found(tmp_path)
    assert one.guided.count("denoiser(") == 2
    assert "+ scale * (" in one.guided
    assert "+ 1.0 * (" in one.called


def test_what_wraps_a_model_receives_two_conditions_where_it_guides(tmp_path: Path) -> None:
    (one,) = found(tmp_path, model=WRAPPED)
    assert "condition=begun, unconditional_condition=begun, guidance_scale=scale, model_kwargs={})" in one.guided
    assert "condition=None, unconditional_condition=None, guidance_scale=1.0" in one.called


@pytest.mark.parametrize("how", [
    {"given": "order=config.order"},  # nobody knows
    {"given": "**config.more"},
    {"told": "guided = config.model.noise_of"},  # another object than the model
    {"told": "if config.one:\n        betas = betas / 2\n    guided = net"},  # assigned where it may not be
    {"told": "guided = net\n    net = Schedule(betas)"},  # another class
    {"told": TWO + "    guided = config.wrap(guided)"},
    {"told": "guided = net\n    betas[0] = 0"},
    {"told": "def guided(x, t, y):\n        for _ in range(2):\n            x = net(x, t)\n        return x"},
    {"model": "config.model_fn"},
])  # fmt: skip
def test_what_cannot_be_read_is_refused(how: dict[str, str], tmp_path: Path) -> None:
    assert not found(tmp_path, **how)


def test_a_lambda_is_written_in(tmp_path: Path) -> None:
    (one,) = found(tmp_path, told="guided = net", model="lambda x, when: net(x, when * 999, y=config.y)")
    assert one.called.startswith("Solver(model_fn=lambda x, t: denoiser(x, t * 999), schedule=")


def test_other_methods_of_this_name_are_left_alone(tmp_path: Path) -> None:
    name = written(tmp_path)
    file = tmp_path / "solver.py"
    file.write_text(file.read_text(encoding="utf-8").replace("skip_type", "spacing"), encoding="utf-8")
    assert not solver_calls(find_reference(name))
