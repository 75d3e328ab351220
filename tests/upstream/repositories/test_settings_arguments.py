"""Arguments of functions that are settings: their values are those of configs, and those that a run decides."""

import ast
from pathlib import Path

import pytest

from omni_kit.pysource.source import read_source
from omni_kit.upstream.repositories.processes.authors_calls import authors_calls
from omni_kit.upstream.repositories.processes.settings_arguments import settings_arguments
from omni_kit.upstream.repositories.reference import find_reference
from omni_kit.upstream.repositories.repository import Repository, repository_of
from tests.upstream.repositories.test_authors_calls import NET

CONFIG = """
sampling: {num_samples: 16, im_size: 28, title: run, num_timesteps: 300, beta_start: 0.0001}
"""
OPTIONS = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--method", default="dopri5")
parser.add_argument("--step-size", type=float, default=0.01)
parser.add_argument("--cfg-scale", type=float, default=1.5)
"""


def settings(place: Path, body: str, whole: bool = False) -> list[str]:
    (place / "config.yaml").write_text(CONFIG, encoding="utf-8")
    file = place / "run.py"
    file.write_text(f"{OPTIONS}\n\ndef sample(model, x, args):\n    {body}\n", encoding="utf-8")
    repository: Repository = repository_of(file)
    source = read_source(repository, file)
    function = source.functions["sample"]
    assert isinstance(function, ast.FunctionDef)
    found = []
    for one in settings_arguments(repository, [source], function):
        told = one.told(whole=whole)
        assert told is not None
        found.append(one.expression(told.said))
    return found


@pytest.mark.parametrize(("body", "found"), [
    ("return args.method, args.step_size, args.cfg_scale",
     ["namespace(cfg_scale=1.5, method='euler', step_size=1 / steps)"]),
    ("return args['num_samples'], args['im_size'], args.get('title')",
     ["dict(im_size=begun.shape[-1], num_samples=len(begun), title='run')"]),
    ("return args['num_timesteps'], args['beta_start']", ["dict(beta_start=0.0001, num_timesteps=steps)"]),
    ("return args['unknown'], args['title']", ["dict(title='run', unknown=given.unknown)"]),
    ("return args", []),
    ("return args['title'], other(args, key='x')",
     ["dict(num_samples=len(begun), im_size=begun.shape[-1], title='run', num_timesteps=300, beta_start=0.0001)"]),
    ("return args.step_size, [args]", []),
    ("return args.sample(x)", []),
    ("return [args[name] for name in names]", []),
])  # fmt: skip
def test_values_are_those_of_configs_or_of_a_run(body: str, found: list[str], tmp_path: Path) -> None:
    assert settings(tmp_path, body, whole="timesteps" in body) == found


PROCESS = """
import torch


class Process:
    def __init__(self, num_timesteps, beta_start, beta_end):
        self.betas = torch.linspace(beta_start, beta_end, num_timesteps)

    def back(self, x, answer, t):
        return x - self.betas[t] * answer
"""
SCRIPT = """
import torch
from net import Net
from process import Process


def sample(model, process, settings):
    x = torch.randn(settings["num_samples"], 4, settings["im_size"], settings["im_size"])
    for t in reversed(range(settings["num_timesteps"])):
        x = process.back(x, model(x, torch.tensor([t])), t)
    print(x)
"""


def test_an_object_of_a_class_that_is_imported_is_made_with_as_many_steps(tmp_path: Path) -> None:
    for name, text in (("net.py", NET), ("process.py", PROCESS), ("run.py", SCRIPT), ("config.yaml", CONFIG)):
        (tmp_path / name).write_text(text, encoding="utf-8")
    (call,) = authors_calls(find_reference(f"{tmp_path / 'net.py'}::Net"))
    assert call.called == (
        "sample(model=denoiser, process=around(Process, (), None, num_timesteps=steps, beta_start=0.0001, "
        "beta_end=0.02), settings=dict(im_size=begun.shape[-1], num_samples=len(begun), num_timesteps=steps))"
    )
    assert (call.trained, call.parts) == (300, (("process", "Process"),))
