"""patchgen drift --apply: what is found to be called otherwise is renamed in a saved checkpoint."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from omni_kit.cli import main
from omni_kit.pysource.library import find_library
from omni_kit.resources import resource_dir
from tests.cli.test_schemas import validate
from tests.conftest import run_cli

CONFIG = resource_dir("reference_models") / "veomni" / "olmoe" / "olmoe_gpu_patch_gen_config.py"
OLD, NEW = "model.layers.3.mlp.gate.weight", "model.layers.3.mlp.router.weight"


@pytest.fixture
def renamed(newer: Path) -> Path:
    """A version in which the gate is a router."""
    file = newer / "models" / "olmoe" / "modeling_olmoe.py"
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace("self.gate = ", "self.router = ").replace("self.gate(", "self.router("))
    return newer


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A checkpoint with one of the gates."""
    place = tmp_path / "saved"
    place.mkdir()
    save_file({OLD: np.arange(6.0), "model.norm.weight": np.ones(2)}, place / "model.safetensors")
    return place


def drift(newer: Path, *more: str) -> list[str]:
    before = str(find_library("transformers").root)
    return ["patchgen", "drift", str(CONFIG), "--from", before, "--to", str(newer), *more]


def test_the_map_is_applied(renamed: Path, saved: Path, tmp_path: Path) -> None:
    """Exit 0: under these names it loads, whatever became of the patches."""
    apply = ("--apply", str(saved), "--into", str(tmp_path / "out"))
    code, dry = run_cli(*drift(renamed, *apply, "--dry-run"))
    assert (code, dry["applied"]["written"], (tmp_path / "out").exists()) == (0, False, False)
    code, data = run_cli(*drift(renamed, *apply))
    assert (code, data["ok"]) == (0, True)
    validate(data)
    assert data["applied"]["keys"] == {"read": 2, "renamed": 1, "copied": 1} == dry["applied"]["keys"]
    assert (data["applied"]["model_type"], data["applied"]["form"]) == ("olmoe", "safetensors")
    assert load_file(tmp_path / "out" / "model.safetensors")[NEW].tolist() == list(range(6))


def test_what_the_map_does_not_settle_is_exit_1(renamed: Path, saved: Path, tmp_path: Path) -> None:
    file = renamed / "models" / "olmoe" / "modeling_olmoe.py"
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace("self.lm_head = nn.Linear(config.", "self.lm_head = nn.Linear(2 * config.", 1))
    code, data = run_cli(*drift(renamed, "--apply", str(saved), "--into", str(tmp_path / "out")))
    assert (code, data["applied"]["written"]) == (1, True)
    assert data["keys"][0]["reshaped"]


def test_the_same_names_leave_nothing_to_apply(newer: Path, saved: Path, tmp_path: Path) -> None:
    code, data = run_cli(*drift(newer, "--apply", str(saved), "--into", str(tmp_path / "out")))
    assert (code, "no parameter is called otherwise" in data["error"]) == (2, True)
    assert not (tmp_path / "out").exists()


def test_a_person_reads_the_counts(
    renamed: Path, saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(drift(renamed, "--apply", str(saved), "--into", str(tmp_path / "out"))) == 0
    assert "1 of 2 keys renamed as olmoe's, 1 copied" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--into", "out"), "belong to --apply"),
        (("--dry-run",), "belong to --apply"),
        (("--apply", "saved", "--from", "old"), "writes a new checkpoint"),
        (("--apply", "saved", "--into", "out"), "needs both versions"),
    ],
)
def test_options_that_stand_alone(options: tuple[str, ...], reason: str) -> None:
    code, data = run_cli("patchgen", "drift", str(CONFIG), *options)
    assert (code, reason in data["error"], bool(data["hint"])) == (2, True, True), json.dumps(data)
