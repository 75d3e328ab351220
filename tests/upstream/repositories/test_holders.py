"""Samplers that are methods of objects which surely hold the model, and loops that are none."""

from pathlib import Path

import pytest

from omni_kit.errors import BadInput
from omni_kit.upstream.repositories.processes.authors_calls import authors_calls
from omni_kit.upstream.repositories.reference import find_reference
from omni_kit.upstream.repositories.sampling import samplings_of

NET = """
from torch import nn


class Net(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.inner = nn.Linear(dim, dim)

    def forward(self, x, t, c):
        return self.inner(x)
"""
HOLDS = """
import torch
from torch import nn
from tqdm import tqdm
{imports}

class Process(nn.Module):
    def __init__(self, {given}):
        super().__init__()
        {own}self.velocity_fn = {made}

    def mean(self, x, t, c):
        return x - self.velocity_fn(x, t, c) / 4

    def step(self, x, t, c):
        return self.mean(x, t, c) + 0.1 * torch.randn_like(x)

    def loss(self, x, c):
        for t in range(4):
            total = self.velocity_fn(x, t, c).sum()
        return total

    def {name}(self{takes}):
        x = torch.randn(2, 8)
        for i in tqdm(reversed(range({steps})), total=4):
            x = self.step(x, torch.full((2,), i), self.c)
        return x
"""
MADE = {"given": "settings", "own": "", "made": "Net(8)", "imports": "from net import Net\n", "takes": "", "steps": "4"}
INSIDE = {**MADE, "imports": "", "own": "from net import Net\n        "}
GIVEN = {**MADE, "given": "velocity_fn", "made": "velocity_fn", "imports": ""}
DATA = """
from net import Net


def predict(model, loader):
    total = 0
    for batches in loader:
        for batch in batches:
            guess = model(batch, 1, 2)
            total += model.process.distance(guess, batch) * len(batch)
    return total


def tally(x, steps):
    for t in range(steps):
        x = x + t
    return x
"""


def named(tmp_path: Path, more: str = "") -> list[str]:
    return [one.full_name for one in samplings_of(find_reference(f"{tmp_path / 'net.py'}::Net{more}"))]


@pytest.mark.parametrize("text", [
    HOLDS.format(name="restore", **MADE), HOLDS.format(name="restore", **INSIDE), HOLDS.format(name="restore", **GIVEN),
])  # fmt: skip
def test_a_loop_calls_the_model_in_other_methods_of_its_object(text: str, tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(NET, encoding="utf-8")
    (tmp_path / "process.py").write_text(text, encoding="utf-8")
    use = "from net import Net\nfrom process import Process\n\nprocess = Process(Net(8).cuda())\n"
    (tmp_path / "use.py").write_text(use if "given" not in text and "Net" not in text else "", encoding="utf-8")
    (tmp_path / "measure.py").write_text(DATA, encoding="utf-8")
    assert named(tmp_path) == ["process.Process.restore"]
    assert named(tmp_path, "::Process.restore") == ["process.Process.restore"]
    again = find_reference(f"{tmp_path / 'net.py'}::Net::restore")
    assert [one.full_name for one in authors_calls(again)] == ["process.Process.restore"]


TABLE = """

def small(**more):
    net = MADE(**more)
    return net


NETS = {"small": small, "other": None}
"""


@pytest.mark.parametrize(("made", "found"), [("Net", ["process.Process.restore"]), ("nn.Linear", [])])
def test_a_table_of_functions_makes_the_model(made: str, found: list[str], tmp_path: Path) -> None:
    given = {**MADE, "imports": "from net import NETS\n", "made": "NETS[kind](dim=8)", "given": "kind"}
    (tmp_path / "net.py").write_text(NET + TABLE.replace("MADE", made), encoding="utf-8")
    (tmp_path / "process.py").write_text(HOLDS.format(name="restore", **given), encoding="utf-8")
    assert named(tmp_path) == found


def test_a_sampler_that_is_given_the_model_is_called_whatever_its_argument_is_called(tmp_path: Path) -> None:
    told = {**GIVEN, "takes": ", infer_steps=4", "steps": "infer_steps"}
    (tmp_path / "net.py").write_text(NET, encoding="utf-8")
    (tmp_path / "process.py").write_text(HOLDS.format(name="forward", **told), encoding="utf-8")
    (tmp_path / "use.py").write_text("from net import Net\nfrom process import Process\n\n"
                                     "model = Net(8)\nmodel = Process(model)\n", encoding="utf-8")  # fmt: skip
    calls = authors_calls(find_reference(f"{tmp_path / 'net.py'}::Net"))
    assert [one.called for one in calls] == ["Process(velocity_fn=denoiser)(infer_steps=steps)"]


def test_loops_over_data_and_loops_that_measure_sample_nothing(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(NET, encoding="utf-8")
    (tmp_path / "measure.py").write_text(DATA, encoding="utf-8")
    assert named(tmp_path) == []


@pytest.mark.parametrize(("name", "said"), [
    ("tally", "its loop calls no model with what came of the call before"), ("Net.forward", "it has no loop over"),
    ("nothing", "'nothing' is not a function of theirs"),
])  # fmt: skip
def test_what_is_so_of_a_named_function_is_said(name: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(NET, encoding="utf-8")
    (tmp_path / "measure.py").write_text(DATA, encoding="utf-8")
    with pytest.raises(BadInput, match=said):
        named(tmp_path, f"::{name}")


@pytest.mark.parametrize(("imports", "expected"), [
    ("from net import Net", ["use.sample"]), ("from other import Net", []), ("from child import Base", []),
    ("from other import Net as Other\nfrom net import Net", ["use.sample"]),
])  # fmt: skip
def test_files_that_import_another_class_of_the_name_are_about_that_one(
    imports: str, expected: list[str], tmp_path: Path
) -> None:
    for name in ("net", "other"):
        (tmp_path / f"{name}.py").write_text(NET, encoding="utf-8")
    (tmp_path / "child.py").write_text("from other import Net\n\n\nclass Base:\n    kind = Net\n", encoding="utf-8")
    loop = "\n\ndef sample(net, x, c, n):\n    for t in range(n):\n        x = x - net(x, t, c)\n    return x\n"
    more = "\n\nclass Own(Base):\n    pass\n" if "Base" in imports else ""
    (tmp_path / "use.py").write_text(f"{imports}{more}{loop}", encoding="utf-8")
    assert named(tmp_path) == expected
