"""Levels, statuses, exit codes and the JSON of the contract."""

import io
import json
import math
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from omni_kit.cli import main
from omni_kit.cli.parity import show
from omni_kit.errors import BadInput, MissingRequirement
from omni_kit.parity import LEVELS, LevelResult, ParityReport, run_parity
from omni_kit.parity.candidate import require
from omni_kit.parity.levels import parse_levels
from omni_kit.parity.processes.workers import Sides
from omni_kit.parity.report.report import Divergence, Proof, Worst

CONTRACT_LEVEL = {"level", "status", "reason", "max_abs", "max_rel", "tolerance", "seconds"}


def report(*statuses: str) -> ParityReport:
    levels = [LevelResult(level, status) for level, status in zip(LEVELS, statuses, strict=False)]  # type: ignore[arg-type]
    return ParityReport(path="x", model_type="y", levels=levels)


@pytest.mark.parametrize(
    ("statuses", "code"),
    [
        (("pass", "pass"), 0),
        (("pass", "fail"), 1),
        (("pass", "skip"), 3),
        (("error", "pass"), 3),
        (("error", "fail", "skip"), 1),
        ((), 3),
    ],
)
def test_only_what_passed_everywhere_is_proven(statuses: tuple[str, ...], code: int) -> None:
    assert report(*statuses).exit_code == code
    assert report(*statuses).ok == (code == 0)


def test_levels_run_once_each_in_the_order_of_the_contract() -> None:
    assert parse_levels(["backward", "keys", "import", "keys"]) == ["import", "keys", "backward"]
    assert parse_levels(None) == ["import", "keys", "roundtrip", "forward", "backward"]


@pytest.mark.parametrize("levels", [["forwards"], []])
def test_an_unknown_level_is_answered_with_the_known_ones(levels: list[str]) -> None:
    with pytest.raises(BadInput) as caught:
        parse_levels(levels)

    assert "roundtrip" in caught.value.hint


def test_a_level_that_was_not_asked_for_has_no_result() -> None:
    with pytest.raises(KeyError):
        report("pass").level("backward")


def test_the_json_has_every_field_of_the_contract() -> None:
    level = LevelResult(
        "forward", "fail", "why", 0.5, math.inf, 1e-5, 0.1, worst=(Worst("logits", 0.5, math.inf, "x"),)
    )
    full = ParityReport(
        path="p",
        model_type="m",
        levels=[level],
        first_divergence=Divergence("model.layers.1", 0.2, 0.0),
        prove=Proof(25, 25, 24, ["softmax twice"]),
    )

    data = full.to_json()

    assert set(data["levels"][0]) >= CONTRACT_LEVEL
    assert data["levels"][0]["worst"][0]["name"] == "logits"
    found = data["first_divergence"]
    assert (found["module"], found["added"], found["inherited"]) == ("model.layers.1", 0.2, 0.0)
    assert data["prove"]["missed"] == ["softmax twice"]
    assert report("pass").to_json()["first_divergence"] is None
    json.dumps(report("pass").to_json())


def test_a_missing_package_is_named_with_the_command_that_installs_it() -> None:
    with pytest.raises(MissingRequirement) as caught:
        require({"no_such_framework": "pip install no-such-framework"})

    assert "no_such_framework" in caught.value.message
    assert caught.value.hint == "pip install no-such-framework"


def test_importing_the_room_imports_no_torch() -> None:
    code = (
        "import sys, omni_kit.parity, omni_kit.cli; sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    )

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere"], "does not exist"),
        (["{package}/empty"], "is empty"),
        (["{package}"], "registers nothing"),
        (["{model}", "--levels", "forward,sideways"], "unknown parity level 'sideways'"),
        (["{model}", "--checkpoint", "nowhere"], "not a checkpoint directory"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    arguments: list[str], words: str, tmp_path: Path, veomni_models: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "__init__.py").touch()
    (tmp_path / "empty").mkdir()
    filled = [part.format(package=tmp_path, model=veomni_models / "llama") for part in arguments]

    assert main(["parity", *filled, "--format", "json"]) == 2

    answer = json.loads(capsys.readouterr().out)
    assert answer["schema"] == "omni-kit/error/1"
    assert words in answer["error"]
    assert "\n" not in answer["error"]


def test_a_level_that_is_left_out_is_no_success(veomni_models: Path, sides: Sides) -> None:
    found = run_parity(veomni_models / "llama", ["import", "keys", "ep"], sides=sides)

    assert (found.ok, found.exit_code, found.model_type) == (False, 3, "llama")
    levels = [(level["level"], level["status"]) for level in found.to_json()["levels"]]
    assert levels == [("import", "pass"), ("keys", "pass"), ("ep", "skip")]


@pytest.mark.sweep
def test_the_command_prints_the_contract_and_its_exit_code(
    veomni_models: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["parity", str(veomni_models / "llama"), "--levels", "import,keys,ep", "--format", "json"])

    answer = json.loads(capsys.readouterr().out)
    assert code == 3
    assert answer["schema"] == "omni-kit/parity/1"
    assert answer["ok"] is False
    assert [(level["level"], level["status"]) for level in answer["levels"]] == [
        ("import", "pass"),
        ("keys", "pass"),
        ("ep", "skip"),
    ]
    assert answer["model_type"] == "llama"
    assert {"first_divergence", "prove", "notes", "omni_kit"} <= set(answer)


def test_the_table_shows_reasons_in_full_and_who_is_to_blame() -> None:
    reason = "2 of 41 tensors differ: " + ", ".join(
        f"model.layers.{layer}.mlp.experts.gate_up_proj" for layer in range(4)
    )
    divergence = Divergence("model.layers.1", 0.2, 0.0, "what it returns", "mine.py:7", "theirs.py:9")
    levels = [LevelResult("import", "pass"), LevelResult("forward", "fail", reason, 0.5, 0.25, 1e-5, 0.1)]
    console = Console(width=100, file=io.StringIO(), highlight=False)

    show(console, ParityReport("p", "olmoe", levels, divergence))

    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert all(f"model.layers.{layer}.mlp" in text for layer in range(4))
    for words in (
        "olmoe",
        "2.5e-01",
        "1.0e-05",
        "model.layers.1 adds 2.0e-01 to what it returns",
        "mine.py:7",
        "theirs.py:9",
    ):
        assert words in text


def test_a_device_that_is_not_there_is_said(veomni_models: Path) -> None:
    with pytest.raises(BadInput, match="abacus"):
        run_parity(veomni_models / "llama", device="abacus")
