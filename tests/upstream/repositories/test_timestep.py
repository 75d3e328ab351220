"""The argument of a forward that is the time, by its name or by what is computed with it."""

from pathlib import Path

import pytest

from omni_kit.upstream.repositories.reference import find_reference
from omni_kit.upstream.repositories.timestep import step_of

MODEL = """
import math
import torch
from torch import nn


def timestep_embedding(t, dim):
    return torch.cat([t[:, None].sin(), t[:, None].cos()], dim=1)


def level(gammas, dim):
    turned = gammas[:, None] * torch.arange(dim // 2)[None]
    return torch.cos(turned)


def waves(values):
    return values.sin()


class Waves(nn.Module):
    def forward(self, x):
        return torch.sin(x[:, None] * 2)


class Net(nn.Module):
    def __init__(self, width: int = 64):
        super().__init__()
        self.inner = nn.Sequential(Waves(), nn.Linear(1, width))
        self.project = nn.Linear(width, width)

    def gen_embedding(self, r, most=10000):
        r = r * most
        emb = math.log(most) / 2
        emb = r[:, None] * emb
        return emb.cos()

    def forward(self, x, a, b=None):
        {code}
        return x
"""


@pytest.mark.parametrize(("code", "name"), [
    ("x = x + timestep_embedding(a, 8)", "a"),
    ("x = x + self.gen_embedding(a)", "a"),
    ("level = a.float()\\n        x = x * torch.log(level)", "a"),
    ("x = x + waves(values=b)", "b"),
    ("x = x + self.inner(a.reshape(-1))", "a"),
    ("x = x + level(a.view(-1), self.width)", "a"),
    ("x = x + level(a, x.shape[1])", ""),
    ("x = x + self.project(a)", ""),
    ("x = torch.sin(x) + a", ""),
    ("x = waves(x + self.project(x)) * a", ""),
])  # fmt: skip
def test_a_time_is_known_by_its_use(tmp_path: Path, code: str, name: str) -> None:
    (tmp_path / "model.py").write_text(MODEL.format(code=code.replace("\\n", "\n")))
    found, how = step_of(find_reference(f"{tmp_path}/model.py::Net"))
    assert found == name
    assert bool(how) == bool(name)


def test_the_name_of_a_time_comes_first_and_positions_are_none(tmp_path: Path) -> None:
    code = MODEL.format(code="x = x + waves(b) + waves(a)")
    (tmp_path / "model.py").write_text(code.replace("x, a, b=None", "x, a, b, sigma"))
    assert step_of(find_reference(f"{tmp_path}/model.py::Net"))[0] == "sigma"
    (tmp_path / "text.py").write_text(
        code.replace("x, a, b=None", "x, position_ids, coords").replace("(b)", "(coords)")
    )
    assert step_of(find_reference(f"{tmp_path}/text.py::Net")) == ("", "")


@pytest.mark.parametrize(("arguments", "name"), [
    ("x, step", "step"), ("x, step, t", "t"), ("step, x", ""), ("x, time_cond", "time_cond"),
    ("x, temb, sigma", "sigma"),
])  # fmt: skip
def test_a_step_is_a_time_where_nothing_else_is(tmp_path: Path, arguments: str, name: str) -> None:
    text = MODEL.replace("self, x, a, b=None", f"self, {arguments}").replace("{code}", "x = self.project(x)")
    (tmp_path / "net.py").write_text(text, encoding="utf-8")
    assert step_of(find_reference(f"{tmp_path}::Net"))[0] == name
