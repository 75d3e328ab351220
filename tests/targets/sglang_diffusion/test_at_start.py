"""What SGLang imports is there in every process of its environment, once it is imported and not before."""

import sys
from pathlib import Path

import pytest

from omni_kit.isolation.programs import run_program

ROOT = Path(__file__).parents[3]
_STAND_INS = """
import sys
from importlib.util import find_spec
{line}
before = "torchaudio" in sys.modules
find_spec("json"), find_spec("sglang")
print(before, "torchaudio" in sys.modules or find_spec("torchaudio") is not None)
"""
_TORCHVISION = """
{line}
import torch
from torchvision.transforms.v2.functional import resize
print(list(resize(torch.zeros(3, 8, 8), [4, 2]).shape))
"""


def _printed(code: str) -> str:
    line = (ROOT / "environments/sglang/omni_kit_stand_ins.pth").read_text(encoding="utf-8")
    done = run_program([sys.executable, "-c", code.format(line=line)], timeout=300)
    assert done.code == 0, done.stderr
    return done.stdout.strip()


def test_the_line_of_the_environment_registers_stand_ins_with_sglang() -> None:
    assert _printed(_STAND_INS) == "False True"


def test_with_it_torchvision_resizes_pictures_on_a_cpu() -> None:
    pytest.importorskip("sglang")  # elsewhere nothing installs torchvision
    assert _printed(_TORCHVISION) == "[3, 4, 2]"
