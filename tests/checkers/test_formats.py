"""A report for machines: SARIF, GitHub annotations, and the pages about the rules."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from omni_checkers import Finding, Report, Severity, all_rules, check
from omni_checkers.engine.docs import differences, main, pages
from omni_checkers.engine.registry import all_definitions
from omni_kit.cli import main as omni_kit
from omni_kit.diagnostics.github import as_github
from omni_kit.diagnostics.pages import LONGEST
from omni_kit.diagnostics.sarif import as_sarif

from .conftest import Subject

_WRONG = {"__init__.py": ('register("olmoe")', 'register("olmo_e")')}
DOCS = Path(__file__).parents[2] / "docs" / "rules"


@pytest.fixture
def log(subject: Subject) -> dict[str, Any]:
    path = subject(edits=_WRONG)
    return json.loads(json.dumps(as_sarif(check([path]), path)))  # type: ignore[no-any-return]


class TestSarif:
    def test_a_finding_is_a_result_with_its_place(self, log: dict[str, Any]) -> None:
        (run,) = log["runs"]
        (result,) = run["results"]
        place = result["locations"][0]["physicalLocation"]
        assert (result["ruleId"], result["level"]) == ("VEO101", "error")
        assert place["artifactLocation"] == {"uri": "__init__.py"}
        assert place["region"]["startLine"] > 1

    def test_results_point_to_their_rules(self, log: dict[str, Any]) -> None:
        (run,) = log["runs"]
        for result in run["results"]:
            assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"]

    def test_rules_bring_their_documentation(self, log: dict[str, Any]) -> None:
        for rule in log["runs"][0]["tool"]["driver"]["rules"]:
            assert rule["shortDescription"]["text"]
            assert "Why: " in rule["help"]["text"]
            assert rule["defaultConfiguration"]["level"] in {"error", "warning", "note"}

    def test_fingerprints_do_not_depend_on_the_line(self) -> None:
        def fingerprint(line: int) -> str:
            report = Report([Finding("m", Path("a.py"), line, 1, "VEO101", Severity.error)], rules=list(all_rules()))
            return str(as_sarif(report)["runs"][0]["results"][0]["partialFingerprints"])

        assert fingerprint(1) == fingerprint(9)

    def test_no_findings_are_an_empty_list(self, olmoe: Path) -> None:
        assert as_sarif(check([olmoe]))["runs"][0]["results"] == []

    def test_on_the_command_line(self, subject: Subject, capsys: pytest.CaptureFixture[str]) -> None:
        assert omni_kit(["check", str(subject(edits=_WRONG)), "--format", "sarif", "--no-cache"]) == 1
        assert json.loads(capsys.readouterr().out)["version"] == "2.1.0"


class TestGitHub:
    def test_a_finding_is_a_workflow_command(self, subject: Subject) -> None:
        path = subject(edits=_WRONG)
        (line,) = as_github(check([path]), path)
        assert re.fullmatch(
            r"::error file=__init__\.py,line=\d+,col=1,title=VEO101::'olmo_e' is not a model_type .*", line
        )

    @pytest.mark.parametrize(
        ("severity", "command"),
        [(Severity.error, "error"), (Severity.warning, "warning"), (Severity.info, "notice")],
    )
    def test_severities(self, severity: Severity, command: str) -> None:
        report = Report([Finding("m", Path("/a.py"), rule="VEO101", severity=severity)])
        assert next(as_github(report)).startswith(f"::{command} ")

    def test_what_has_a_meaning_there_is_escaped(self) -> None:
        report = Report([Finding("50%\nlost: a, b", Path("/a,b:c.py"), rule="VEO101", severity=Severity.error)])
        (line,) = as_github(report)
        assert line == "::error file=/a%2Cb%3Ac.py,line=1,col=1,title=VEO101::50%25 lost: a, b"

    def test_on_the_command_line(self, subject: Subject, capsys: pytest.CaptureFixture[str]) -> None:
        assert omni_kit(["check", str(subject(edits=_WRONG)), "--format", "github", "--no-cache"]) == 1
        assert capsys.readouterr().out.startswith("::error file=")


class TestPages:
    def test_the_committed_pages_are_what_the_rules_say(self) -> None:
        assert differences(DOCS) == [], "run `python -m omni_checkers.engine.docs docs/rules`"

    def test_there_is_a_page_for_every_rule_and_an_index(self) -> None:
        made = pages()
        own = [one for one in all_definitions().values() if not one.family]
        assert made.keys() == {"README.md", *(f"{one.id}.md" for one in own)}
        for one in own:
            assert f"]({one.id}.md)" in made["README.md"]
            assert "## Why" in made[f"{one.id}.md"]

    def test_every_detector_has_a_section_on_the_page_of_its_family(self) -> None:
        made = pages()
        for one in all_definitions().values():
            assert not one.family or f"### {one.id}: {one.name}\n" in made[f"{one.family}.md"]

    def test_examples_are_short_diffs(self) -> None:
        for name, text in pages().items():
            diff = re.search(r"^(`{3,})diff\n(.*?)^\1$", text, re.DOTALL | re.MULTILINE)
            assert diff is None or len(diff[2].splitlines()) <= LONGEST, name
        assert "-    router_probs" in pages()["VEO415.md"]

    def test_drift_is_seen(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main([str(tmp_path)]) == 0
        assert main([str(tmp_path), "--check"]) == 0
        (tmp_path / "VEO101.md").write_text("old\n", encoding="utf-8")
        (tmp_path / "VEO102.md").unlink()
        (tmp_path / "VEO999.md").write_text("gone\n", encoding="utf-8")
        assert main([str(tmp_path), "--check"]) == 1
        assert capsys.readouterr().out.split()[-3:] == ["VEO101.md", "VEO102.md", "VEO999.md"]
        assert main([str(tmp_path)]) == 0
        assert differences(tmp_path) == []
