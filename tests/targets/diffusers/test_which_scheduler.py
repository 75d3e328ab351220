"""The scheduler that authors load: which class, which settings, and what only a checkpoint has."""

import ast
from pathlib import Path

import pytest

from omni_kit.targets.diffusers.scheduling.extracted_loop import Chosen, scheduler_of
from omni_kit.upstream.repositories.reference import find_reference

FILE = """from typing import Union

from diffusers import DDIMScheduler, DDPMScheduler
from torch import nn


class Net(nn.Module):
    def forward(self, x, t):
        return x


class Pipe:
    def __init__(self, net, scheduler{annotation}):
        self.net, self.scheduler = net, scheduler

    def __call__(self, x):
        return self.scheduler.step(x)


def main(folder, kind):
    {lines}
"""
LOADED = 'one = DDIMScheduler.from_pretrained(folder, subfolder="scheduler", beta_schedule="linear", beta_end=folder)'


def chosen(tmp_path: Path, annotation: str, lines: str) -> Chosen:
    (tmp_path / "net.py").write_text(FILE.format(annotation=annotation, lines=lines), encoding="utf-8")
    reference = find_reference(f"{tmp_path / 'net.py'}::Net")
    source = reference.cls.source
    made = [one for one in ast.walk(source.tree) if isinstance(one, ast.FunctionDef) and one.name == "__call__"]
    return scheduler_of(reference, source, made[0], "self.scheduler")


@pytest.mark.parametrize("annotation", ["", ": Union[DDIMScheduler, DDPMScheduler]"])
def test_settings_that_are_passed_over_those_of_a_checkpoint_are_kept(annotation: str, tmp_path: Path) -> None:
    found = chosen(tmp_path, annotation, LOADED)
    assert (found.meant, found.given) == ("DDIMScheduler", {"beta_schedule": "linear"})
    assert [one.partition(":")[0] for one in found.todo] == [
        "set the scheduler's settings as the authors' checkpoint does"
    ]


def test_another_class_that_is_loaded_is_named(tmp_path: Path) -> None:
    other = f'{LOADED}\n    if kind == "ddpm":\n        one = DDPMScheduler.from_pretrained(folder)'
    assert chosen(tmp_path, "", other).todo[1].endswith("also uses DDPMScheduler")


def test_settings_of_a_constructor_leave_nothing_open(tmp_path: Path) -> None:
    found = chosen(tmp_path, "", 'one = DDIMScheduler(beta_schedule="linear")')
    assert (found.meant, found.given, found.todo) == ("DDIMScheduler", {"beta_schedule": "linear"}, ())
