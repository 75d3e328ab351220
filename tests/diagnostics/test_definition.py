"""IDs: families and their detectors, and what a prefix, a comment or an entry of a baseline stands for."""

import json
import re
from pathlib import Path

import pytest

from omni_checkers.engine.registry import all_definitions, find_definition
from omni_kit.diagnostics.baseline import Baseline
from omni_kit.diagnostics.definition import Selection, documentation, family_of
from omni_kit.diagnostics.finding import Finding
from omni_kit.diagnostics.pages import LONGEST, example_diff
from omni_kit.diagnostics.suppress import suppressions


def test_ids_have_one_form() -> None:
    for one in all_definitions().values():
        form = r"[A-Z]{3}\d{3}\.[1-9]\d*" if one.family else r"[A-Z]{3}\d{3}"
        assert re.fullmatch(form, one.id), one.id
        assert one.family in ("", family_of(one.id))


def test_every_id_says_what_it_asks_for_and_why() -> None:
    for one in all_definitions().values():
        said = one.documentation
        assert said.summary, one.id
        assert said.why, one.id
        assert said.fine_when, one.id


def test_a_name_means_one_id_within_a_family_and_outside() -> None:
    for family in {one.family for one in all_definitions().values()}:
        names = [(one.target, one.name) for one in all_definitions().values() if one.family == family]
        assert len(names) == len(set(names))


@pytest.mark.parametrize("family", ["VEO402", "VEO405", "VEO414", "VEO415", "VEO427"])
def test_families_have_detectors(family: str) -> None:
    assert len([one for one in all_definitions().values() if one.family == family]) > 1
    assert find_definition(f"{family.lower()}").id == family


@pytest.mark.parametrize(
    ("select", "ignore", "inside", "outside"),
    [
        ([], [], ["VEO415.1", "VEO301"], []),
        (["veo415"], [], ["VEO415.1", "VEO415.10"], ["VEO416"]),
        (["VEO415.1"], [], ["VEO415.1"], ["VEO415.10", "VEO415.2", "VEO415"]),
        (["VEO4"], ["VEO415.1"], ["VEO415.2", "VEO402.1"], ["VEO415.1", "VEO301"]),
        ([], ["VEO415"], ["VEO416"], ["VEO415.1", "VEO415"]),
    ],
)
def test_a_selection(select: list[str], ignore: list[str], inside: list[str], outside: list[str]) -> None:
    selection = Selection(select, ignore)
    assert [one in selection for one in inside] == [True] * len(inside)
    assert [one in selection for one in outside] == [False] * len(outside)


def test_prefixes_that_nothing_begins_with() -> None:
    assert Selection(["VEO4", "ABC"], ["VEO415.9"]).unknown(["VEO415", "VEO415.1"]) == ["ABC", "VEO415.9"]


@pytest.mark.parametrize(
    ("listed", "rule", "covered"),
    [
        ("VEO415", "VEO415.2", True),
        ("VEO415.2", "VEO415.2", True),
        ("VEO415.2", "VEO415.21", False),
        ("VEO415.2", "VEO415.3", False),
        ("VEO4", "VEO415.2", False),
        ("VEO301", "VEO301", True),
    ],
)
def test_a_comment_means_an_id_or_its_family(listed: str, rule: str, covered: bool, tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    (comment,), _ = suppressions(file, f"x = 1  # omni-kit: ignore[{listed}] on purpose\n")
    assert comment.covers(Finding("", file, 1, rule=rule)) is covered


@pytest.mark.parametrize(("known", "matched"), [("VEO415", 2), ("VEO415.1", 1), ("VEO416", 0)])
def test_a_baseline_knows_an_id_or_its_family(known: str, matched: int, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\n", encoding="utf-8")
    entry = {"rule": known, "path": "a.py", "text": "x = 1"}
    file = tmp_path / "baseline.json"
    file.write_text(json.dumps({"schema": "omni-kit/baseline/1", "findings": [entry, entry]}), encoding="utf-8")
    findings = [Finding("", tmp_path / "a.py", 1, rule=f"VEO415.{number}") for number in (1, 2)]
    left, count, stale = Baseline(file).read().split(findings)
    assert (count, len(left), len(stale)) == (matched, 2 - matched, 2 - matched)


def test_the_parts_of_a_docstring() -> None:
    said = documentation("Do it.\n\nAll of\nit.\n\nWhy: it\nhurts.\n\nFine when: never.")
    assert (said.summary, said.details, said.why, said.fine_when) == ("Do it.", "All of\nit.", "it hurts.", "never.")


class TestDiff:
    def test_shows_what_differs(self) -> None:
        text = "".join(f"line {number}\n" for number in range(90))
        lines = example_diff([{"a.py": text}], [{"b.py": "other"}, {"a.py": text.replace("50", "fifty")}]).splitlines()
        assert [line for line in lines if line.startswith(("- ", "-l", "+l"))] == ["-line 50", "+line fifty"]

    def test_is_cut_where_it_is_long(self) -> None:
        long = "".join(f"line {number}\n" for number in range(90))
        lines = example_diff([{"a.py": long}, {"b.py": "x"}], [{"a.py": ""}]).splitlines()
        assert len(lines) == LONGEST
        assert "more lines" in lines[-1]

    def test_of_nothing_is_empty(self) -> None:
        assert example_diff([], [{}]) == ""
