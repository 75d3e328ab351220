"""What `patchgen upgrade` prints, writes and leaves alone."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import run_cli
from tests.patchgen.conftest import FIXTURES
from tests.patchgen.upgrade.seeds import MODELING


@pytest.fixture
def bump(tmp_path: Path) -> Path:
    """A config between two versions of a library: one change merges, and one clashes."""
    for side in ("old", "new"):
        shutil.copytree(FIXTURES / "seeds" / "small", tmp_path / side / "small")
    modeling = tmp_path / "new" / "small" / MODELING
    text = modeling.read_text(encoding="utf-8").replace("num_experts, top_k=2)", "num_experts, top_k=4)")
    modeling.write_text(text.replace("F.silu(gate)", "F.gelu(gate)"), encoding="utf-8")
    return Path(shutil.copy(FIXTURES / "seeds" / "plug" / "a_patch_gen_config.py", tmp_path))


def run(config: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    sides = ("--from", str(config.parent / "old"), "--to", str(config.parent / "new"), "--library", "small")
    return run_cli("patchgen", "upgrade", str(config), *sides, *arguments)


def test_a_conflict_is_marked_once(bump: Path) -> None:
    code, answer = run(bump)
    text = bump.read_text(encoding="utf-8")
    assert code == 1
    assert answer["ok"] is False
    assert "top_k=4" in text
    assert text.count("<<<<<<< omni-kit patchgen upgrade: AMLP.forward") == 1
    assert "F.gelu" in text
    assert "fused_silu(gate, up)" in text
    run(bump)
    assert bump.read_text(encoding="utf-8") == text


def test_nothing_is_written(bump: Path) -> None:
    before = bump.read_text(encoding="utf-8")
    code, answer = run(bump, "--diff")
    assert code == 1
    assert "+def load_balancing(gate_logits, num_experts, top_k=4):" in str(answer["diff"])
    assert bump.read_text(encoding="utf-8") == before
    run(bump, "--dry-run")
    assert bump.read_text(encoding="utf-8") == before


def test_the_older_version_is_needed(bump: Path) -> None:
    code, answer = run_cli("patchgen", "upgrade", str(bump))
    assert code == 2
    assert "--from" in answer["hint"]
