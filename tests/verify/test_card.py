"""The card: what it says, and that nobody can change what it says."""

import hashlib
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from omni_kit.errors import BadInput
from omni_kit.verify.card import Card, Stage, StageStatus, load_card


def card(*statuses: StageStatus) -> Card:
    stages = [
        Stage(f"s{number}", status, "why | so" if status == "failed" else "") for number, status in enumerate(statuses)
    ]
    return Card("plugins/mine", {"quick": False}, stages, ("a.py:3 VEO301",), "", {"files": {"a.py": "1"}})


@pytest.mark.parametrize(("statuses", "passed", "complete", "code"), [
    (("passed", "not applicable"), True, True, 0),
    (("passed", "failed"), False, True, 1),
    (("passed", "not tested"), True, False, 3),
    (("failed", "not tested"), False, False, 1),
    (("not tested",), False, False, 3),
    (("not applicable",), False, True, 3),
])  # fmt: skip
def test_what_was_not_tested_is_no_pass(
    statuses: tuple[StageStatus, ...], passed: bool, complete: bool, code: int
) -> None:
    found = card(*statuses)
    assert (found.passed, found.complete, found.exit_code) == (passed, complete, code)


@pytest.mark.parametrize("suffix", [".json", ".md"])
def test_a_card_is_read_as_it_was_written(suffix: str, tmp_path: Path) -> None:
    file = tmp_path / f"card{suffix}"
    written = card("passed", "failed", "not tested")
    file.write_text(written.markdown() if suffix == ".md" else written.dumps(), encoding="utf-8")

    assert load_card(file).card.to_json() == written.to_json()


@pytest.mark.parametrize(("old", "new"), [
    ('"status": "failed"', '"status": "passed"'),
    ('"passed": false', '"passed": true'),
    ('"complete": false', '"complete": true'),
    ('"a.py": "1"', '"a.py": "2"'),
    ('"a.py:3 VEO301"', ""),
])  # fmt: skip
def test_a_card_that_was_changed_is_refused(old: str, new: str, tmp_path: Path) -> None:
    text = card("passed", "failed", "not tested").dumps()
    assert old in text
    file = tmp_path / "card.json"
    file.write_text(text.replace(old, new), encoding="utf-8")

    with pytest.raises(BadInput, match="was changed after it was written"):
        load_card(file)


def test_a_recomputed_checksum_does_not_hide_a_verdict_that_the_stages_do_not_bear(tmp_path: Path) -> None:
    from omni_kit.verify.card import _checksum

    body = json.loads(card("failed").dumps())
    del body["checksum"]
    body["passed"] = True
    file = tmp_path / "card.json"
    file.write_text(json.dumps({**body, "checksum": _checksum(body)}), encoding="utf-8")

    with pytest.raises(BadInput, match="was changed"):
        load_card(file)


def test_a_card_of_an_earlier_version_names_its_checksum_seal(tmp_path: Path) -> None:
    file = tmp_path / "card.json"
    text = card("passed").dumps().replace('"checksum"', '"seal"')
    file.write_text(text, encoding="utf-8")
    assert load_card(file).card.to_json() == card("passed").to_json()

    file.write_text(text.replace('"passed": true', '"passed": false'), encoding="utf-8")
    with pytest.raises(BadInput, match="was changed"):
        load_card(file)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"checksum": 1}', '{"seal": 1}', "no card"])
def test_what_is_no_card_is_said_to_be_none(text: str, tmp_path: Path) -> None:
    file = tmp_path / "card.json"
    file.write_text(text, encoding="utf-8")

    with pytest.raises(BadInput, match="is not a card"):
        load_card(file)


@pytest.mark.parametrize("change", [
    {"path": 5}, {"path": "\ud800"}, {"options": [1]}, {"options": {"min_branches": "90"}},
    {"options": {"device": ["cpu"]}}, {"options": {"weights": {}}}, {"pins": [1]}, {"pins": None}, {"suppressions": 7},
    {"baseline": {}}, {"stages": {"check": "passed"}}, {"stages": ["passed"]},
    {"stages": [{"stage": "check", "status": ["passed"]}]}, {"stages": [{"stage": "check", "status": "excellent"}]},
    {"stages": [{"stage": {}, "status": "passed"}]}, {"stages": [{"stage": "check", "status": "passed", "reason": 5}]},
    {"stages": [{"stage": "check", "status": "passed", "untried": 5}]}, {"not_tried": []}, {"branches": [1]},
])  # fmt: skip
def test_a_card_with_a_right_checksum_and_values_of_wrong_types_is_none(
    change: dict[str, object], tmp_path: Path
) -> None:
    body = {**json.loads(card("passed").dumps()), **change}
    del body["checksum"]
    text = json.dumps(body, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    checksum = hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()
    file = tmp_path / "card.json"
    file.write_text(json.dumps({**body, "checksum": checksum}), encoding="utf-8")

    with pytest.raises(BadInput, match="is not a card"):
        load_card(file)


def test_a_card_is_read_from_regular_files_alone(tmp_path: Path) -> None:
    pipe = tmp_path / "card.json"
    os.mkfifo(pipe)

    with pytest.raises(BadInput, match="not a regular file"):
        load_card(pipe)


def test_no_name_forges_a_line_of_the_block() -> None:
    forged = "m`\n\n| train | ✓ passed | <img src=x> |"
    found = replace(card("failed"), path=forged, baseline=forged)
    before, after = found.markdown().splitlines(), card("failed").markdown().splitlines()

    shown = before[: before.index("<details><summary>card</summary>")]
    assert len(shown) == after.index("<details><summary>card</summary>")
    assert not any("<img" in line.replace(r"\<", "") for line in shown)


def test_the_block_for_a_pull_request_breaks_no_table() -> None:
    (row,) = [line for line in card("failed").markdown().splitlines() if line.startswith("| s0")]
    assert row == r"| s0 | ✗ failed | why \| so |"
