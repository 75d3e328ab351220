"""A failed run is kept in a file, and run again from it with the same figures."""

import json
import os
from pathlib import Path

import pytest

from omni_kit.cli import main
from omni_kit.errors import BadInput
from omni_kit.parity import ParityReport, replay_parity, run_parity
from omni_kit.parity.processes.workers import Sides
from omni_kit.parity.report.saved import SCHEMA, load_replay

from .conftest import MODELING, Plant

LEVELS = ["keys", "forward"]


@pytest.fixture(scope="module")
def failed(plant: Plant, sides: Sides) -> ParityReport:
    edits = {MODELING: [("self.act_fn(gate) * up\n", "self.act_fn(gate) * up * 1.01\n")]}
    return run_parity(plant("replayed", edits), LEVELS, sides=sides)


def test_a_run_that_passes_leaves_nothing_behind(veomni_models: Path, sides: Sides) -> None:
    assert run_parity(veomni_models / "llama", ["keys"], sides=sides).replay == ""


def test_the_file_has_the_toy_and_what_was_asked(failed: ParityReport) -> None:
    saved = load_replay(Path(failed.replay))

    assert saved.options.levels == LEVELS
    assert saved.options.toy is not None
    assert saved.options.toy["model_type"] == "qwen3_moe"
    assert saved.module == "model.layers.0.mlp.experts"
    assert "torch" in saved.versions
    assert Path(failed.replay).is_relative_to(os.environ["OMNI_KIT_CACHE"])


def test_again_the_figures_are_the_same(failed: ParityReport, sides: Sides) -> None:
    again = replay_parity(Path(failed.replay), sides=sides)

    assert [(x.level, x.status, x.max_abs, x.max_rel) for x in again.levels] == [
        (x.level, x.status, x.max_abs, x.max_rel) for x in failed.levels
    ]
    assert again.first_divergence == failed.first_divergence
    assert "the same figures as in the saved run" in again.notes


def test_what_is_no_longer_so_is_said(failed: ParityReport, plant: Plant, sides: Sides, tmp_path: Path) -> None:
    data = json.loads(Path(failed.replay).read_text(encoding="utf-8"))
    data["versions"]["torch"] = "1.0"
    (tmp_path / "old.json").write_text(json.dumps(data), encoding="utf-8")

    mended = replay_parity(tmp_path / "old.json", path=plant("mended", {}), sides=sides)

    assert mended.ok
    assert any(note.startswith("torch was 1.0 then and is ") for note in mended.notes)
    assert any(
        note.startswith("forward: fail (") and note.endswith("then, pass (0.00e+00) now") for note in mended.notes
    )
    assert "first divergence: model.layers.0.mlp.experts then, none now" in mended.notes


def test_the_directory_that_is_kept_keeps_the_file_too(plant: Plant, sides: Sides, tmp_path: Path) -> None:
    edits = {MODELING: [("self.down_proj", "self.down"), ("module.down_proj", "module.down")]}
    report = run_parity(plant("kept", edits), ["keys"], sides=sides, work_dir=tmp_path / "work")

    assert report.replay == str(tmp_path / "work" / "replay.json")
    assert report.again == f"omni-kit parity --replay {report.replay}"
    first = Path(report.replay).read_bytes()
    again = run_parity(Path(report.path), ["keys"], sides=sides, work_dir=tmp_path / "work")
    assert again.replay == str(tmp_path / "work" / "replay-2.json")
    assert Path(report.replay).read_bytes() == first


@pytest.mark.parametrize("text", ["{}", "[]", "nonsense", json.dumps({"schema": SCHEMA, "options": {}})])
def test_another_file_is_refused(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file.json").write_text(text, encoding="utf-8")

    assert main(["parity", "--replay", str(tmp_path / "file.json")]) == 2
    assert capsys.readouterr().err.count("error:") == 1
    with pytest.raises(BadInput):
        load_replay(tmp_path / "nowhere.json")


def test_a_replay_cannot_be_asked_for_something_else(failed: ParityReport, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["parity", "--replay", failed.replay, "--levels", "keys"]) == 2
    assert "--replay takes its options from the file" in capsys.readouterr().err
