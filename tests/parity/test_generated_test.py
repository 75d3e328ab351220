"""The test that a scaffold writes: it passes on what is right, and says in a few lines what is wrong."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from omni_kit.resources import resource_dir

FAULT = ("self.act_fn(gate) * up\n", "self.act_fn(gate) * up * 1.01\n")


@pytest.mark.sweep
@pytest.mark.parametrize("faulty", [True, False])
def test_the_scaffolds_own_test(tmp_path: Path, faulty: bool) -> None:
    model = tmp_path / "olmoe"
    shutil.copytree(resource_dir("reference_models") / "veomni" / "olmoe", model)
    modeling = model / "generated" / "patched_modeling_olmoe_gpu.py"
    text = modeling.read_text(encoding="utf-8")
    assert FAULT[0] in text
    if faulty:
        modeling.write_text(text.replace(*FAULT), encoding="utf-8")

    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "olmoe/tests"],
        cwd=tmp_path, env={**os.environ, "PYTEST_ADDOPTS": ""}, capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert done.returncode == int(faulty), done.stdout
    said = [line for line in done.stdout.splitlines() if line.startswith("E ")]
    assert len(said) <= 8
    if faulty:
        assert any("first divergence: model.layers.0.mlp.experts adds" in line for line in said)
        assert any("rerun: omni-kit parity --replay " in line for line in said)
        assert "run_parity(" not in done.stdout
