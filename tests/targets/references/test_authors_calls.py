"""How authors' samplers guide, which runs with two answers show."""

from pathlib import Path

import pytest

from omni_kit.targets.diffusers.trials import tried
from omni_kit.upstream.repositories.processes.authors_calls import authors_calls
from omni_kit.upstream.repositories.processes.sampler_call import Guidance
from omni_kit.upstream.repositories.reference import find_reference

SAMPLER = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.inner = nn.Linear(dim, dim)

    def forward(self, x, t, y=None):
        return self.inner(x)


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


@pytest.mark.parametrize(("asked", "how"), [
    (HALVES + USUAL, Guidance.usual),
    (CALLS + USUAL, Guidance.usual),
    (HALVES + "v = v + guidance_scale * (v - other)", Guidance.less),
    ("v = model(x, t)", Guidance.unasked),
    (HALVES + "v = other + (guidance_scale if now > 0.5 else 1.0) * (v - other)", Guidance.other),
    (HALVES + "v = other + guidance_scale**2 * (v - other)", Guidance.other),
])  # fmt: skip
def test_guidance_is_what_two_answers_show(asked: str, how: Guidance, tmp_path: Path) -> None:
    file = tmp_path / "net.py"
    file.write_text(SAMPLER.replace("ASKED", asked), encoding="utf-8")
    (call,) = authors_calls(find_reference(f"{file}::Net"))
    said = ("module", "name", "parts", "called", "guided", "draws", "trained", "far")
    request = {
        "reference": f"{file}::Net", "order": ["x", "t", "y"], "latents": "x", "time": "t", "values": 1, "axes": [4],
        "counts": [3, 4], "calls": [{name: getattr(call, name) for name in said}],
    }  # fmt: skip
    (found,) = tried("omni_kit.targets.references.authors_calls:trace", request, 60)
    assert found["guides"] == how
