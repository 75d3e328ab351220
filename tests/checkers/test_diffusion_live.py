"""VEO638, which builds wrappers over classes of diffusers: its examples and variants in one run of processes."""

from pathlib import Path

import pytest

from omni_checkers import Finding, Report, check, find_rule

from .conftest import Edits, Subject, home_of
from .variants import read_variants

RULE = "VEO638"
EXAMPLES: list[tuple[str, bool, Edits, str]] = [
    *((f"bad-{number}", True, edits, "") for number, edits in enumerate(find_rule(RULE).BAD)),
    *((f"good-{number}", False, edits, "") for number, edits in enumerate(find_rule(RULE).GOOD)),
]
VARIANTS = [(v.name, v.findings > 0, v.edits, v.says) for v in read_variants() if v.rule == RULE]
CASES = [*EXAMPLES, *VARIANTS]


def _live(path: Path) -> tuple[Report, list[Finding]]:
    report = check([path], select=[RULE], level="import")
    return report, [finding for finding in report.findings if finding.rule == RULE]


@pytest.mark.parametrize(("name", "broken", "edits", "says"), CASES, ids=[case[0] for case in CASES])
def test_case(name: str, broken: bool, edits: Edits, says: str, subject: Subject) -> None:
    report, findings = _live(subject("wan_t2v", edits))
    assert bool(findings) == broken, findings
    assert all(result.status != "not-applicable" for result in report.results)
    assert not findings or any(says in finding.message for finding in findings), findings


@pytest.mark.parametrize("model", ["wan_t2v", "qwen_image"])
def test_veomnis_own(model: str, veomni_models: Path) -> None:
    """type(model.config) is dict after a save that failed; nothing else."""
    _, findings = _live(home_of(veomni_models, model))
    assert [finding.message for finding in findings] == ["the config is not put back when writing fails"]


@pytest.mark.parametrize("model", ["ltx2_3", "minimax_h3"])
def test_a_model_that_diffusers_has_not_gives_no_finding(model: str, veomni_models: Path) -> None:
    assert _live(home_of(veomni_models, model))[1] == []
