"""Schedulers that authors make of entries of a config."""

import ast
from pathlib import Path
from typing import Any

import pytest

from omni_kit.pysource.eval import UNKNOWN
from omni_kit.targets.diffusers.scheduling.configured_scheduler import constructed_with, held_as
from omni_kit.upstream.repositories.reference import find_reference

NET = "from torch import nn\n\n\nclass Net(nn.Module):\n    def forward(self, x, t):\n        return x\n"
CONFIG = "model:\n  width: 8\n  clip_sample: true\nnoise:\n  num_train_timesteps: {}\n  beta_schedule: linear\n"
KNOWN = {"num_train_timesteps": 100, "beta_schedule": "linear"}


@pytest.mark.parametrize(("call", "steps", "found"), [
    ("DDIMScheduler(**config['noise'])", [100], KNOWN),
    ("DDIMScheduler(**config.noise, clip_sample=False)", [100], {**KNOWN, "clip_sample": False}),
    ("DDIMScheduler(num_train_timesteps=c['num_train_timesteps'], beta_schedule=c.beta_schedule)", [100, 100], KNOWN),
    ("DDIMScheduler(num_train_timesteps=9)", [100], {"num_train_timesteps": 9}),
    ("DDIMScheduler(num_train_timesteps=c.get('steps', STEPS), eta=c.get('eta', 0.5))", [],
     {"num_train_timesteps": 500, "eta": 0.5}),
    ("DDIMScheduler(num_train_timesteps=STEPS, eta=OTHER)", [], {"num_train_timesteps": 500, "eta": UNKNOWN}),
    ("DDIMScheduler(**config['noise'])", [100, 200], {"": UNKNOWN}),
    ("DDIMScheduler(**config['noise'])", [], {"": UNKNOWN}),
    ("DDIMScheduler(num_train_timesteps=c['steps'], beta_schedule=c.kind)", [100],
     {"num_train_timesteps": UNKNOWN, "beta_schedule": UNKNOWN}),
])  # fmt: skip
def test_entries_of_a_config_are_those_of_all_configs_that_have_them(
    call: str, steps: list[int], found: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "net.py").write_text(f"STEPS = 500\n{NET}")
    for number, one in enumerate(steps):
        (tmp_path / f"{number}.yaml").write_text(CONFIG.format(one))
    node = ast.parse(call, mode="eval").body
    assert isinstance(node, ast.Call)
    reference = find_reference(f"{tmp_path}/net.py::Net")
    assert constructed_with(reference.cls.source, node, "DDIMScheduler", reference.repository) == found


HELD = """
class Policy:
    def __init__(self, noise_scheduler: DDIMScheduler = None):
        self.noise_scheduler = noise_scheduler or DDPMScheduler()
        self.fast = DDIMScheduler()
        self.given = noise_scheduler
        if self.fast:
            self.twice = DDIMScheduler()
        self.twice = DDPMScheduler()

    def sample(self):
        scheduler = self.fast
        given = self.given
"""


@pytest.mark.parametrize(("written", "value"), [
    ("self.fast", "DDIMScheduler()"), ("scheduler", "DDIMScheduler()"), ("given", "noise_scheduler"),
    ("self.noise_scheduler", "DDPMScheduler()"), ("self.twice", None), ("self.other", None),
])  # fmt: skip
def test_a_scheduler_is_what_its_attribute_holds(written: str, value: str | None, tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(NET + HELD)
    source = find_reference(f"{tmp_path}/net.py::Net").cls.source
    sample = source.classes["Policy"].body[-1]
    assert isinstance(sample, ast.FunctionDef)
    found = held_as(source, sample, written)
    assert (ast.unparse(found) if found is not None else None) == value
