"""What patchgen reports can be selected, ignored by ID, comment or baseline, and shown as SARIF."""

import json
import shutil
from pathlib import Path

import pytest

from omni_kit.cli import main
from tests.conftest import run_cli

from .conftest import FIXTURES


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A config of which patchgen says PGN401 (an error) alone, and whose file is not generated."""
    for name in ("before.py", "undefined_name_fires.py"):
        shutil.copy(FIXTURES / "diagnostics" / name, tmp_path / name)
    return tmp_path / "undefined_name_fires.py"


def codes(*arguments: str) -> tuple[int, list[str]]:
    code, data = run_cli("patchgen", *arguments)
    return code, [found["id"] for found in data["configs"][0]["diagnostics"]]


def test_an_error_can_be_ignored_by_its_id(config: Path) -> None:
    assert codes("run", str(config), "--dry-run") == (1, ["PGN401"])
    assert codes("run", str(config), "--dry-run", "--ignore", "PGN401") == (0, [])
    assert codes("run", str(config), "--dry-run", "--select", "PGN1") == (0, [])


def test_an_error_can_be_ignored_by_a_comment(config: Path) -> None:
    _, data = run_cli("patchgen", "run", str(config), "--dry-run")
    line = data["configs"][0]["diagnostics"][0]["line"]
    lines = config.read_text(encoding="utf-8").splitlines()
    lines[line - 1] += "  # omni-kit: ignore[PGN401] defined by the loader"
    config.write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert codes("run", str(config), "--dry-run") == (0, [])


def test_a_baseline_knows_what_was_there(config: Path, tmp_path: Path) -> None:
    file = str(tmp_path / "known.json")
    assert codes("run", str(config), "--dry-run", "--write-baseline", file)[0] == 0
    assert codes("run", str(config), "--dry-run", "--baseline", file) == (0, [])


def test_what_the_comparison_finds_can_be_ignored(config: Path) -> None:
    assert codes("check", str(config), "--ignore", "PGN401") == (1, ["PGN702"])
    assert codes("check", str(config), "--ignore", "PGN401,PGN7") == (0, [])


@pytest.mark.parametrize(("prefix", "says"), [("PGN101", "cannot be ignored"), ("PGN999", "no diagnostic has an ID")])
def test_an_id_that_cannot_be_ignored_is_bad_input(prefix: str, says: str, config: Path) -> None:
    code, data = run_cli("patchgen", "run", str(config), "--ignore", prefix)
    assert code == 2
    assert says in data["error"]


def test_sarif_has_the_place_and_the_documentation(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["patchgen", "run", str(config), "--dry-run", "--format", "sarif"]) == 1
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    (result,) = run["results"]
    assert result["ruleId"] == "PGN401"
    assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["name"] == "undefined-name"
    assert result["locations"][0]["physicalLocation"]["region"]["startLine"] > 1
