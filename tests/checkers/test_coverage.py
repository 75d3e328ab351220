"""docs/coverage.md: no blanks, and every claim is of something that exists."""

import re
from pathlib import Path

import pytest

from omni_checkers import all_rules
from omni_checkers.coverage import failure_modes, main, obligations, page
from omni_kit.cli import main as omni_kit
from omni_kit.parity import LEVELS
from omni_kit.parity.faults import FAULTS
from omni_kit.parity.faults.calling import CALL_FAULTS
from omni_kit.parity.faults.conversion import CONVERSION
from omni_kit.parity.faults.media import MEDIA_FAULTS
from omni_kit.parity.faults.processes import PROCESS_FAULTS
from omni_kit.parity.faults.sharing import SHARING_FAULTS
from omni_kit.resources import resource_dir

DOC = Path(__file__).parents[2] / "docs" / "coverage.md"
ROWS = [*obligations(), *failure_modes()]


def _exists(claim: str) -> bool:
    kind, _, name = claim.partition(":")
    if kind == "rule":
        return name in {rule.id for rule in all_rules()}
    if kind == "parity":
        return name in LEVELS
    if kind == "fault":
        of_code = {fault.name for fault in (*FAULTS, *CONVERSION)}
        return name in of_code or name in {*CALL_FAULTS, *MEDIA_FAULTS, *PROCESS_FAULTS, *SHARING_FAULTS}
    if kind == "command":
        return omni_kit([name, "--help"]) == 0
    if kind == "template":
        return (resource_dir("templates") / name).is_file()
    return kind == "skill" and (resource_dir("skills") / name / "SKILL.md").is_file()


def test_the_committed_page_is_up_to_date() -> None:
    assert DOC.read_text(encoding="utf-8") == page(), "run `python -m omni_checkers.coverage docs/coverage.md`"


def test_no_row_is_blank() -> None:
    """Each is covered, or says why it is not."""
    assert [row.id for row in ROWS if not (row.about and (row.claims or row.note))] == []


def test_every_claim_exists(capsys: pytest.CaptureFixture[str]) -> None:
    claims = {claim for row in ROWS for claim in row.claims}
    assert [claim for claim in sorted(claims) if not _exists(claim)] == []
    assert {claim.partition(":")[0] for claim in claims} == {"rule", "parity", "fault", "command", "template", "skill"}


@pytest.mark.parametrize(
    "claim", ["rule:VEO999", "parity:gpu", "command:fly", "template:veomni/x.jinja", "skill:x", "x:y"]
)
def test_a_claim_of_what_is_not_there_is_seen(claim: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert not _exists(claim)


def test_rules_name_only_what_is_in_the_tables() -> None:
    known = {row.id for row in ROWS}
    for rule in all_rules():
        assert {*rule.obligations, *rule.failure_modes} <= known, rule.id


def test_what_nothing_covers_says_why() -> None:
    diffusion = [row for row in obligations() if row.id.startswith(("DIT", "SGL", "DIF"))]
    assert len(diffusion) == 140
    assert all(row.claims or row.note for row in diffusion)


def test_every_obligation_has_a_sentence_of_its_own() -> None:
    said = [row.about for row in obligations()]
    assert len(set(said)) == len(said)
    assert all(" " in sentence and "\n" not in sentence for sentence in said)


def test_the_page_is_a_regular_table() -> None:
    rows = [line for line in page().splitlines() if line.startswith("| ") and not line.startswith("| id ")]
    assert len(rows) == len(ROWS)
    assert all(len(re.split(r"(?<!\\)\|", row)) == 6 for row in rows)


def test_drift_is_seen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "coverage.md"
    assert main([str(file), "--check"]) == 1
    assert main([str(file)]) == 0
    assert main([str(file), "--check"]) == 0
    assert "out of date" in capsys.readouterr().out
