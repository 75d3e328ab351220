"""Every rule's own examples: BAD fires, GOOD passes all rules."""

import importlib.util

import pytest

from omni_checkers import Rule, all_rules, check
from omni_kit.errors import MissingRequirement
from tests.conftest import sampled

from .conftest import Plugin

RULES = [rule for rule in all_rules() if rule.target == "sglang-diffusion" and rule.id.startswith("SGD")]
STATIC = [rule for rule in RULES if rule.level == "static"]  # the others: tests/targets/sglang_diffusion
BAD = [(rule, index) for rule in STATIC for index in range(len(rule.BAD))]
GOOD = [(rule, index) for rule in STATIC for index in range(len(rule.GOOD))]


@pytest.mark.parametrize(("rule", "index"), BAD, ids=lambda value: getattr(value, "id", value))
def test_a_bad_example_is_found(rule: type[Rule], index: int, plugin: Plugin) -> None:
    report = check([plugin(rule.BAD[index])], select=[rule.id])
    assert {finding.rule for finding in report.findings} == {rule.id}


@pytest.mark.parametrize(("rule", "index"), sampled(GOOD, *GOOD[::4]), ids=lambda value: getattr(value, "id", value))
def test_a_good_example_passes_all_rules(rule: type[Rule], index: int, plugin: Plugin) -> None:
    report = check([plugin(rule.GOOD[index])])
    assert [(one.rule, one.message, one.path.name, one.line) for one in report.findings] == []
    assert [result.status for result in report.results if result.rule == rule.id] == ["pass"]


def test_a_plugin_is_judged_without_sglang(plugin: Plugin, monkeypatch: pytest.MonkeyPatch) -> None:
    path = plugin({})
    monkeypatch.setattr("omni_checkers.sglang_diffusion.facts.sources._library", lambda name: None)
    report = check([path])
    assert report.findings == []
    assert any("SGLang is not installed" in result.reason for result in report.results)


def test_what_needs_sglang_is_not_tested_without_it(plugin: Plugin) -> None:
    path = plugin({})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(importlib.util, "find_spec", lambda name: None)
        with pytest.raises(MissingRequirement, match="--level import needs sglang"):
            check([path], level="import")
