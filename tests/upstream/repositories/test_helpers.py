"""Helpers of a constructor that need what is not installed, and that forward does without."""

from pathlib import Path

import pytest

from omni_kit.upstream.repositories.reference import Reference, find_reference

NET = """import torch
from bodies_of_nobody import Body

class Viewer:
    def __init__(self):
        self.body = Body()

class Net(torch.nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.proj = torch.nn.Linear(width, width)
        self.viewer = {made}
        self.width = width

    def train(self, mode=True):
        super().train(mode)
        self.viewer.body.train(mode)

    def forward(self, x, t):
        return self.proj(x){read}

    def shown(self, x):
        return x
"""


def found_in(folder: Path, made: str, read: str) -> Reference:
    (folder / "m.py").write_text(NET.format(made=made, read=read), encoding="utf-8")
    return find_reference(f"{folder}::Net")


@pytest.mark.parametrize("made", ["Viewer()", "Body(3)"])
def test_a_helper_and_what_reads_it_are_left_out(made: str, tmp_path: Path) -> None:
    found = found_in(tmp_path, made, "")
    assert "self.viewer" not in found.cls.source.text
    assert found.cls.defines("train") is None
    assert found.cls.source.text.count("\n") == NET.count("\n")
    assert "bodies_of_nobody" not in found.closure.packages()


@pytest.mark.parametrize(("made", "read"), [
    ("Viewer()", " + self.viewer.body.offset"),
    ("Viewer()", " + self.shown(self.viewer)"),
    ("torch.nn.Linear(width, width)", ""),
])  # fmt: skip
def test_what_forward_reads_or_torch_makes_stays(made: str, read: str, tmp_path: Path) -> None:
    found = found_in(tmp_path, made, read)
    assert "self.viewer = " in found.cls.source.text
    assert found.cls.defines("train") is not None
