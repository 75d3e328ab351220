"""The card: what it says, and that nobody can change what it says."""

import json
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


def test_the_block_for_a_pull_request_breaks_no_table() -> None:
    (row,) = [line for line in card("failed").markdown().splitlines() if line.startswith("| s0")]
    assert row == r"| s0 | ✗ failed | why \| so |"
