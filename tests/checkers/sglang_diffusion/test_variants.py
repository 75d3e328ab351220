"""Every rule on plugins that break it and on plugins that keep it."""

import ast
from collections import Counter

import pytest

from omni_checkers import all_rules, check
from tests.checkers.edited import Variant
from tests.conftest import sampled

from .conftest import Plugin
from .variants import VARIANTS

RULES = [rule.id for rule in all_rules() if rule.id.startswith("SGD") and rule.level == "static"]
QUICK = {variant.rule: variant for variant in reversed(VARIANTS) if not variant.broken}.values()
"""The first of each rule that keeps it; that the rule fires, an example shows."""


@pytest.mark.parametrize("variant", sampled(VARIANTS, *QUICK), ids=str)
def test_variant(variant: Variant, plugin: Plugin) -> None:
    path = plugin(variant.edits)
    report = check([path], select=[variant.rule])
    result = next(one for one in report.results if one.rule == variant.rule)
    assert (result.status == "fail") == variant.broken, (result, report.findings)
    assert "failed:" not in result.reason
    for finding in report.findings:
        assert 1 <= finding.line <= len(finding.path.read_text(encoding="utf-8").splitlines())


def test_every_rule_has_three_variants_of_either_kind() -> None:
    number = Counter((variant.rule, variant.broken) for variant in VARIANTS)
    assert [(rule, broken) for rule in RULES for broken in (True, False) if number[rule, broken] < 3] == []


def test_variants_have_names_of_their_own() -> None:
    assert {variant.rule for variant in VARIANTS} == set(RULES)
    assert len({str(variant) for variant in VARIANTS}) == len(VARIANTS)


def test_variants_are_valid_python() -> None:
    for variant in VARIANTS:
        for name, text in variant.edits.items():
            if name.endswith(".py"):
                ast.parse(text, f"{variant}: {name}")
