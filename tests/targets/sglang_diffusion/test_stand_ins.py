"""Operators are declared only where torchvision's own cannot be loaded."""

import sys
from pathlib import Path

from omni_kit.isolation.programs import run_program

_DECLARE = """
import sys
from pathlib import Path
from omni_kit.targets.sglang_diffusion.runtime.stand_ins import declare_operators
declared = declare_operators(Path(sys.argv[1]))
import torch
print(declared, hasattr(torch.ops.torchvision, "nms"))
"""


def _printed(package: Path) -> str:
    done = run_program([sys.executable, "-c", _DECLARE, str(package)], timeout=300)
    assert done.code == 0, done.stderr
    return done.stdout.strip()


def test_a_build_that_loads_is_left_alone(tmp_path: Path) -> None:
    assert _printed(tmp_path) == "False False"  # no compiled file, so none that fails


def test_a_build_for_another_torch_has_its_operators_declared(tmp_path: Path) -> None:
    (tmp_path / "_C.so").write_bytes(b"not a library")
    assert _printed(tmp_path) == "True True"
