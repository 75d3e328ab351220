"""Every rule's own examples: BAD fires, GOOD passes all rules."""

import pytest

from omni_checkers import Rule, all_rules, check
from tests.conftest import sampled

from .conftest import Package

RULES = [rule for rule in all_rules() if rule.target == "diffusers" and rule.id.startswith("DFU")]
STATIC = [rule for rule in RULES if rule.level == "static"]  # the others: test_live.py
BAD = [(rule, index) for rule in STATIC for index in range(len(rule.BAD))]
GOOD = [(rule, index) for rule in STATIC for index in range(len(rule.GOOD))]


@pytest.mark.parametrize(("rule", "index"), BAD, ids=lambda value: getattr(value, "id", value))
def test_a_bad_example_is_found(rule: type[Rule], index: int, package: Package) -> None:
    report = check([package(rule.BAD[index])], target="diffusers", select=[rule.id])
    assert {finding.rule for finding in report.findings} == {rule.id}


@pytest.mark.parametrize(("rule", "index"), sampled(GOOD, *GOOD[::4]), ids=lambda value: getattr(value, "id", value))
def test_a_good_example_passes_all_rules(rule: type[Rule], index: int, package: Package) -> None:
    report = check([package(rule.GOOD[index])], target="diffusers")
    assert [(one.rule, one.message, one.path.name, one.line) for one in report.findings] == []
    assert "pass" in [result.status for result in report.results if result.rule == rule.id]


def test_a_package_is_judged_without_diffusers(package: Package, monkeypatch: pytest.MonkeyPatch) -> None:
    from omni_kit.errors import MissingRequirement

    def missing(name: str) -> None:
        raise MissingRequirement(f"{name} is not installed")

    path = package({})
    monkeypatch.setattr("omni_checkers.diffusers.facts.sources.find_library", missing)
    assert check([path], target="diffusers").findings == []
