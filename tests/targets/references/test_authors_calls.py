"""How authors' samplers guide, which runs with two answers show."""

from pathlib import Path
from typing import Any

import pytest

from omni_kit.targets.diffusers.trials import tried
from omni_kit.upstream.repositories.processes.authors_calls import authors_calls
from omni_kit.upstream.repositories.processes.sampler_call import Guidance
from omni_kit.upstream.repositories.reference import find_reference

SAID = ("module", "name", "parts", "called", "guided", "draws", "trained", "far", "defined", "held", "joined", "mixed")
NET = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.inner = nn.Linear(dim, dim)

    def forward(self, x, t, y=None):
        return self.inner(x)
"""
SAMPLER = """

def sample(model, noise, num_steps, guidance_scale=1.0):
    levels = torch.linspace(1, 0, num_steps + 1)
    x = noise
    for now, after in zip(levels[:-1], levels[1:]):
        t = torch.full((len(x),), float(now))
        ASKED
        x = x + (after - now) * v
    return x
"""
HALVES = "v, other = model(torch.cat([x, x]), torch.cat([t, t])).chunk(2)\n        "
CALLS = "other, v = model(x, t), model(x, t)\n        "
USUAL = "v = other + guidance_scale * (v - other)"


def traced(place: Path, sampler: str) -> list[dict[str, Any]]:
    """Return what the one sampler of these authors did with stand-ins."""
    file = place / "net.py"
    file.write_text(NET + sampler, encoding="utf-8")
    (call,) = authors_calls(find_reference(f"{file}::Net"))
    request = {
        "reference": f"{file}::Net", "order": ["x", "t", "y"], "latents": "x", "time": "t", "values": 1, "axes": [4],
        "counts": [3, 4], "calls": [{name: getattr(call, name) for name in SAID}],
    }  # fmt: skip
    found: list[dict[str, Any]] = tried("omni_kit.targets.references.authors_calls:trace", request, 60)
    return found


@pytest.mark.parametrize(("asked", "how"), [
    (HALVES + USUAL, Guidance.usual),
    (CALLS + USUAL, Guidance.usual),
    (HALVES + "v = v + guidance_scale * (v - other)", Guidance.less),
    ("v = model(x, t)", Guidance.unasked),
    (HALVES + "v = other + now * guidance_scale * (v - other)", Guidance.other),
    (HALVES + "v = other + (guidance_scale if now * 4 % 2 else 1.0) * (v - other)", Guidance.other),
    (HALVES + "v = other + guidance_scale**2 * (v - other)", Guidance.other),
])  # fmt: skip
def test_guidance_is_what_two_answers_show(asked: str, how: Guidance, tmp_path: Path) -> None:
    (found,) = traced(tmp_path, SAMPLER.replace("ASKED", asked))
    assert (found["guides"], found["within"]) == (how, None)


SCALED = "v = other + (guidance_scale if GUIDED else 1.0) * (v - other)"
ALONE = """if GUIDED:
            other, v = model(torch.cat([x, x]), torch.cat([t, t])).chunk(2)
            v = other + guidance_scale * (v - other)
        else:
            v = model(x, t)"""


@pytest.mark.parametrize(("asked", "guided", "within"), [
    (HALVES + SCALED, "now > 0.5", [0.5, 1.0, "<", "<="]),
    (CALLS + SCALED, "low <= now <= high", [0.25, 0.75, "<=", "<="]),
    (ALONE, "now < between[1]", [0.0, 0.8, "<=", "<"]),
])  # fmt: skip
def test_the_interval_in_which_a_sampler_guides_is_found(
    asked: str, guided: str, within: list[object], tmp_path: Path
) -> None:
    sampler = SAMPLER.replace("ASKED", asked).replace("GUIDED", guided)
    sampler = sampler.replace("=1.0)", "=1.0, low=0.25, high=0.75, between=(0, 0.8))")
    (found,) = traced(tmp_path, sampler)
    assert (found["guides"], found["within"]) == (Guidance.usual, within)


OBJECT = """

class Step(nn.Module):
    def __init__(self, rate):
        super().__init__()
        self.rate = RATE

    def forward(self, x, t, v):
        return x - self.rate * v


class Flow(nn.Module):
    def __init__(self, num_steps=4, channels=3):
        super().__init__()
        self.model, self.step = Net(), Step(1 / num_steps)
        self.num_steps, self.channels = num_steps, channels

    @torch.no_grad()
    def sample(self, batch_size, size=256):
        x = torch.randn(batch_size, self.channels, size, size)
        for i in reversed(range(self.num_steps)):
            t = torch.full((batch_size,), i)
            x = self.step(x, t, self.model(x, t))
        return x
"""


@pytest.mark.parametrize(("rate", "steps"), [("rate", True), ("nn.Parameter(rate * torch.ones(()))", False)])
def test_a_step_that_is_a_module_without_layers_steps_and_noise_has_the_size_of_the_latents(
    rate: str, steps: bool, tmp_path: Path
) -> None:
    """A module with weights is the denoiser's stand-in: it may be large, and load them from somewhere."""
    file = tmp_path / "net.py"
    file.write_text(NET + OBJECT.replace("RATE", rate), encoding="utf-8")
    (call,) = authors_calls(find_reference(f"{file}::Net"))
    request = {
        "reference": f"{file}::Net", "order": ["x", "t", "y"], "latents": "x", "time": "t", "values": 1, "axes": [4],
        "counts": [4, 5], "calls": [{name: getattr(call, name) for name in SAID}],
    }  # fmt: skip
    (found,) = tried("omni_kit.targets.references.authors_calls:trace", request, 60)
    calls = found["ways"][0]["calls"]
    assert (len(calls) == 4 and calls[0][0] - 0.25 <= calls[1][0] < calls[0][0]) is steps
