"""Every rule on models that break it and on models that keep it, each written differently."""

import ast
from collections import Counter

import pytest

from omni_checkers import all_rules, check
from tests.conftest import sampled

from .conftest import Subject, status_in
from .variants import Variant, read_variants

VARIANTS = read_variants()
QUICK = {variant.rule: variant for variant in reversed(VARIANTS) if not variant.findings}.values()
"""The first of each rule that keeps it; that the rule fires, an example shows."""
READING = {rule.id for rule in all_rules() if rule.level == "static"}
"""The other rules run models: see test_levels.py."""
ELSEWHERE = {"OMK003", "OMK004"}
"""Rules whose variants are other rules, or files that are no Python: see test_engine.py."""
OTHERS = {"sglang-diffusion", "diffusers", "skill"}
"""Their rules have variants of another form: see sglang_diffusion, diffusers and skills."""


@pytest.mark.parametrize("variant", sampled([v for v in VARIANTS if v.rule in READING], *QUICK), ids=str)
def test_variant(variant: Variant, subject: Subject) -> None:
    path = subject(variant.model, variant.edits)
    report = check([path], select=[variant.rule])
    findings = report.findings
    assert len(findings) == variant.findings, findings
    for finding in findings:
        lines = finding.path.read_text(encoding="utf-8").splitlines()
        assert variant.says in finding.message
        assert 1 <= finding.line <= max(1, len(lines))
    if not findings and not variant.rule.startswith("OMK"):
        assert status_in(report, variant.rule).startswith("not-applicable" if variant.skipped else "pass")


def test_every_rule_has_three_variants_of_either_kind() -> None:
    rules = [rule.id for rule in all_rules() if rule.id not in ELSEWHERE and rule.target not in OTHERS]
    number = Counter((variant.rule, variant.findings > 0) for variant in VARIANTS)
    assert [(rule, broken) for rule in rules for broken in (True, False) if number[rule, broken] < 3] == []


def test_variants_belong_to_rules_and_have_names_of_their_own() -> None:
    assert {variant.rule for variant in VARIANTS} <= {rule.id for rule in all_rules()}
    assert len({str(variant) for variant in VARIANTS}) == len(VARIANTS)


def test_variants_are_valid_python() -> None:
    for variant in VARIANTS:
        for path, text in variant.edits.items():
            if path.endswith(".py") and variant.rule != "OMK002":
                ast.parse(text, f"{variant}: {path}")
