"""Code that runs on a CPU takes the place of an extension that is compiled."""

from pathlib import Path

import pytest

from omni_kit.errors import Refusal
from omni_kit.targets.diffusers.porting.devices import compiled_at, without_extensions
from omni_kit.upstream.repositories.reference import find_reference
from tests.targets.diffusers.porting.small_models import ASKED, HEAD, SPLIT, attention, ported

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


@pytest.mark.parametrize("compiled", [True, False])
def test_code_that_authors_compile_is_refused(compiled: bool, tmp_path: Path) -> None:
    made = "load(name='kernels', sources=['kernels.cu'])" if compiled else "None"
    head = f"{HEAD}from torch.utils.cpp_extension import load\nKERNELS = {made}\n"
    text = attention(SPLIT, f"{ASKED.replace('return', 'y = KERNELS.run(y) if KERNELS else y' + chr(10) + 'return')}")
    if compiled:
        with pytest.raises(Refusal, match=r"Net needs C\+\+ or CUDA code compiled at .*m\.py:5"):
            ported(tmp_path, text, head)
    else:
        assert "KERNELS = None" in ported(tmp_path, text, head).text


@pytest.mark.parametrize("built", [True, False])
def test_code_that_a_project_of_the_repository_compiles_is_refused(built: bool, tmp_path: Path) -> None:
    extension = "from torch.utils.cpp_extension import CUDAExtension\nCUDAExtension(name='scans_of_nobody')\n"
    (tmp_path / "csrc").mkdir()
    (tmp_path / "csrc" / "setup.py").write_text(extension if built else "")
    text = attention(SPLIT, f"x = scans_of_nobody.run(x)\n{ASKED}")
    if built:
        with pytest.raises(Refusal, match=r"Net needs C\+\+ or CUDA code compiled at .*csrc/setup\.py:2"):
            ported(tmp_path, text, f"{HEAD}import scans_of_nobody\n")
    else:
        assert "import scans_of_nobody" in ported(tmp_path, text, f"{HEAD}import scans_of_nobody\n").text


ASKING = """
class Net(nn.Module):
    def __init__(self, dim: int = 8):
        super().__init__()
        given = torch.cuda.get_device_properties(torch.device("cuda"))
        if given.major >= 8 and given.minor == 0:
            self.scale = 2
        else:
            self.scale = 3
        self.proj = nn.Linear(dim, dim)

    def forward(self, x, t):
        return self.proj(x) * self.scale
"""


@pytest.mark.parametrize(("more", "asks"), [("", False), ("        self.count = given.multi_processor_count\n", True)])
def test_what_a_gpu_s_properties_choose_is_as_without_one(more: str, asks: bool, tmp_path: Path) -> None:
    text = ASKING.replace("        self.proj = nn", f"{more}        self.proj = nn")
    found = ported(tmp_path, text).text
    assert ("get_device_properties" in found) is asks
    assert ("self.scale = 2" in found) is asks
    assert "self.scale = 3" in found
