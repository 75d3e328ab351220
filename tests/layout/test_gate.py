"""What check-layout reports can be selected, ignored by ID or baseline, and shown as SARIF."""

import json
import shutil
from pathlib import Path

import pytest

from omni_kit.cli import main
from omni_kit.layout.codes import DEFINITIONS
from tests.conftest import Checkpoints, run_cli

LOST = "model.norm.weight"


@pytest.fixture
def broken(checkpoint: Checkpoints, tmp_path: Path) -> Path:
    """A checkpoint that lacks one parameter."""
    from safetensors.numpy import load_file, save_file

    directory = Path(shutil.copytree(checkpoint("olmoe"), tmp_path / "olmoe"))
    for file in directory.glob("*.safetensors"):
        tensors = load_file(file)
        save_file({name: tensor for name, tensor in tensors.items() if name != LOST}, file)
    for index in directory.glob("*.index.json"):
        data = json.loads(index.read_text(encoding="utf-8"))
        data["weight_map"].pop(LOST, None)
        index.write_text(json.dumps(data), encoding="utf-8")
    return directory


def found(*arguments: str) -> tuple[int, list[str]]:
    code, data = run_cli("check-layout", *arguments)
    return code, [one["id"] for one in data["findings"]]


def test_a_finding_can_be_ignored(broken: Path) -> None:
    assert found(str(broken)) == (1, ["LAY203"])
    assert found(str(broken), "--ignore", "LAY203") == (0, [])
    assert found(str(broken), "--ignore", "LAY204") == (1, ["LAY203"])


def test_a_baseline_knows_what_was_there(broken: Path, tmp_path: Path) -> None:
    file = str(tmp_path / "known.json")
    assert found(str(broken), "--write-baseline", file)[0] == 0
    assert found(str(broken), "--baseline", file) == (0, [])


def test_sarif(broken: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check-layout", str(broken), "--format", "sarif"]) == 1
    (result,) = json.loads(capsys.readouterr().out)["runs"][0]["results"]
    assert (result["ruleId"], result["level"]) == ("LAY203", "error")


def test_ids_have_a_code_each() -> None:
    assert len({one.id for one in DEFINITIONS.values()}) == len(DEFINITIONS)
