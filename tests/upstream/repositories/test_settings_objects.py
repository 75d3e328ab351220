"""Objects with settings that a sampler's constructor reads."""

import ast
from pathlib import Path
from typing import Any

import pytest

from omni_kit.upstream.repositories.processes.settings_objects import settings_objects
from omni_kit.upstream.repositories.reference import find_reference

NET = "from torch import nn\n\n\nclass Net(nn.Module):\n    def forward(self, x, t):\n        return x\n"
INIT = """
def __init__(self, feats, params):
    self.solver = params.solver
    self.least = params.least if hasattr(params, "least") else 0.1
"""


@pytest.mark.parametrize(("configs", "text"), [
    (["solver: euler\nother: 1\n"], "namespace(solver='euler')"),
    (["solver: euler\nleast: 1e-4\n"], "namespace(least=0.0001, solver='euler')"),
    (["solver: euler\nleast: 0.5\n", "least: 0.2\n"], "namespace(least=0.5, solver='euler')"),
    (["solver: euler\n", "solver: heun\n"], None),
    (["least: 0.5\n"], None),
])  # fmt: skip
def test_attributes_are_those_of_configs_that_agree(configs: list[str], text: str | None, tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(NET)
    for number, one in enumerate(configs):
        (tmp_path / f"{number}.yaml").write_text(f"flow:\n  {one.strip().replace(chr(10), chr(10) + '  ')}\n")
    init = ast.parse(INIT).body[0]
    assert isinstance(init, ast.FunctionDef)
    given = [(one, None) for one in init.args.args[1:]]
    repository = find_reference(f"{tmp_path}/net.py::Net").repository
    found = {one.name: one.expression(whole=False) for one in settings_objects(repository, given, [init])}
    assert found == ({"params": text} if text is not None else {})


def test_options_of_a_command_line_are_settings_like_those_of_a_config(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(NET)
    init = ast.parse(INIT).body[0]
    assert isinstance(init, ast.FunctionDef)
    given = [(one, None) for one in init.args.args[1:]]
    repository = find_reference(f"{tmp_path}/net.py::Net").repository
    options: list[tuple[dict[str, Any], str]] = [({"solver": "heun", "other": 1}, "main.py"), ({"least": 2}, "more.py")]
    found = [one.expression(whole=False) for one in settings_objects(repository, given, [init], options=options)]
    assert found == ["namespace(solver='heun')"]
    (tmp_path / "a.yaml").write_text("flow: {solver: euler}\n")
    repository = find_reference(f"{tmp_path}/net.py::Net").repository
    assert not [*settings_objects(repository, given, [init], options=options)]  # which do not agree


NESTED = """
def __init__(self, opt):
    self.opt = opt
    self.last = opt["noise"].get("last", 0.02)
    self.kind = opt["noise"]["kind"]


def sample(self, opt):
    return self.opt.noise.timesteps, self.opt.k_step, opt["unread"]
"""
CONFIG = """
model:
  width: 8
  k_step: 100
  noise: {kind: linear, timesteps: 100, other: 1}
"""


def test_settings_are_nested_and_the_number_of_steps_is_that_of_a_run(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(NET)
    (tmp_path / "all.yaml").write_text(CONFIG)
    methods = [one for one in ast.parse(NESTED).body if isinstance(one, ast.FunctionDef)]
    repository = find_reference(f"{tmp_path}/net.py::Net").repository
    (found,) = settings_objects(repository, [(methods[0].args.args[1], None)], methods)
    assert found.trained == 100
    assert found.expression(whole=False) == "namespace(k_step=100, noise=namespace(kind='linear', timesteps=100))"
    assert found.expression(whole=True) == "namespace(k_step=steps, noise=namespace(kind='linear', timesteps=steps))"
