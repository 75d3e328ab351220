"""SGLang's caches reach the denoiser of a scaffold: fewer calls with one, the same picture without."""

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
_CALLS = 12  # two at each of six steps


@pytest.mark.parametrize("way", ["native", "modular", "hybrid"])
def test_caches_save_calls_and_change_nothing_when_off(way: str, tmp_path: Path) -> None:
    checkpoint, out = save("wan", tmp_path / "wan"), tmp_path / "out.pt"
    new_model("cached", str(checkpoint), target="sglang-diffusion", force=True, into=tmp_path, kind=way)
    probe = Path(__file__).with_name("caches_probe.py")
    done = subprocess.run(
        [sys.executable, str(probe), str(checkpoint), str(tmp_path / "cached"), str(out)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    found = torch.load(out)
    assert {name: found[name]["denoiser"] for name in ("plain", "cached", "gated", "plain again")} == {
        "plain": _CALLS, "cached": _CALLS, "gated": 9, "plain again": _CALLS
    }  # fmt: skip
    assert found["plain"]["last block"] == found["plain again"]["last block"] == _CALLS
    assert found["cached"]["last block"] < _CALLS
    assert torch.equal(found["plain"]["picture"], found["plain again"]["picture"])
    assert not torch.equal(found["plain"]["picture"], found["cached"]["picture"])
    for name in ("enable_teacache", "enable_spectrum"):
        assert name in found[name]
