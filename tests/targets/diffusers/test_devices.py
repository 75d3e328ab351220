"""Code that runs on a CPU takes the place of an extension that is compiled."""

from pathlib import Path

import pytest

from omni_kit.targets.diffusers.porting.devices import compiled_at, without_extensions
from omni_kit.upstream.repositories.reference import find_reference

_LOADED = 'kernel = load("kernel", sources=["kernel.cu"])'
MODEL = """
import torch
from torch import nn
from torch.utils.cpp_extension import load

kernel = load("kernel", sources=["kernel.cu"])


class Compiled:
    def apply(self, x):
        return kernel.scaled(x)


def scaled_native(x):
    return x * 2


def scaled(x):
    {code}


class Net(nn.Module):
    def forward(self, x, t):
        return scaled(x)
"""


@pytest.mark.parametrize(("code", "without"), [
    ("if x.device.type == 'cpu':\n        x = scaled_native(x)\n    else: x = Compiled().apply(x)\n    return x", True),
    ("if not x.is_cuda:\n        return scaled_native(x)\n    return Compiled().apply(x)", True),
    ("return Compiled().apply(x) if x.device.type == 'cuda' else scaled_native(x)", True),
    ("if x.device.type != 'cpu':\n        return Compiled().apply(x)\n    return scaled_native(x)", True),
    ("return Compiled().apply(x)", False),
    ("if x.ndim == 2:\n        return scaled_native(x)\n    return Compiled().apply(x)", False),
])  # fmt: skip
@pytest.mark.parametrize("guard", ["{}", "if torch.cuda.is_available():\n    {}\nelse:\n    kernel = None",
                                   "try:\n    {}\nexcept Exception:\n    kernel = None"])  # fmt: skip
def test_the_branch_on_a_cpu_needs_no_extension(tmp_path: Path, guard: str, code: str, without: bool) -> None:
    text = MODEL.format(code=code).replace(_LOADED, guard.format(_LOADED))
    (tmp_path / "model.py").write_text(text)
    whole = find_reference(f"{tmp_path}/model.py::Net").closure
    assert any(map(compiled_at, whole.definitions))
    found = without_extensions(whole)
    assert any(map(compiled_at, found.definitions)) is not without
    assert "scaled" in {one.name for one in found.definitions}
