"""Every rule's own examples: BAD fires, GOOD stays quiet."""

import pytest

from omni_checkers import Rule, all_rules
from omni_checkers.veomni import EXAMPLE

from .conftest import Subject, found, status

RULES = [rule for rule in all_rules() if rule.target in {"veomni", "any"}]
READING = [rule for rule in RULES if rule.level == "static"]
"""The others run models: see test_levels.py."""
CASES = [
    (rule, kind, index) for rule in READING for kind in ("BAD", "GOOD") for index in range(len(getattr(rule, kind)))
]


@pytest.mark.parametrize(("rule", "kind", "index"), CASES, ids=lambda value: getattr(value, "id", value))
def test_example(rule: type[Rule], kind: str, index: int, subject: Subject) -> None:
    path = subject(rule.example_of or EXAMPLE, getattr(rule, kind)[index])
    findings = found(path, rule.id)
    assert bool(findings) == (kind == "BAD"), findings
    assert {finding.rule for finding in findings} <= {rule.id}


@pytest.mark.parametrize(("rule", "kind", "index"), [case for case in CASES if case[1] == "GOOD"], ids=str)
def test_a_good_example_is_judged_and_not_merely_skipped(
    rule: type[Rule], kind: str, index: int, subject: Subject
) -> None:
    if rule.target == "any":
        return
    answer = status(subject(rule.example_of or EXAMPLE, rule.GOOD[index]), rule.id)
    assert answer in {"pass", "not-applicable: a converter is attached"}


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule.id != "OMK003"], ids=lambda rule: rule.id)
def test_every_rule_has_both_examples(rule: type[Rule]) -> None:
    assert rule.BAD
    assert rule.GOOD


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_every_rule_says_what_why_and_when_not(rule: type[Rule]) -> None:
    said = rule.documentation()
    assert said.summary.endswith(".")
    assert said.why
    assert said.fine_when
