"""A scaffold serves in the precisions of its own config: those that `sglang generate` uses where nobody chooses."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from omni_kit.scaffold import new_model
from tests.diffusers_pipelines import save

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("sglang") is None, reason="needs SGLang, in an environment of its own: make test-sglang"
)


@pytest.mark.parametrize("way", ["modular", "native", "hybrid", "whole"])
def test_a_checkpoint_in_float32_is_served_in_bfloat16(way: str, tmp_path: Path) -> None:
    checkpoint, out = save("sana", tmp_path / "sana"), tmp_path / "out.pt"
    new_model(f"own_{way}", str(checkpoint), target="sglang-diffusion", force=True, into=tmp_path, kind=way)
    probe = Path(__file__).with_name("precision_probe.py")
    done = subprocess.run(
        [sys.executable, str(probe), str(checkpoint), str(tmp_path / f"own_{way}"), str(out)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    found = torch.load(out)
    assert (found["float32 encoder"], found["own encoder"]) == (torch.float32, torch.bfloat16)
    apart = (found["own"] - found["float32"]).norm() / found["float32"].norm()
    assert 0 < apart < 0.02
