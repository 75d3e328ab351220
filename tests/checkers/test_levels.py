"""Rules that run models: all their examples and variants at once, because importing VeOmni takes seconds."""

import importlib.util
import json
import shutil
from pathlib import Path

import pytest

from omni_checkers import Finding, Report, Rule, all_rules, check
from omni_kit.cli import main
from omni_kit.errors import BadInput
from omni_kit.resources import resource_dir
from tests.conftest import sampled

from .conftest import Edits, asked
from .variants import Variant, read_variants

LIVE = {
    rule.id: rule for rule in all_rules() if rule.level != "static" and not rule.example_of and rule.target == "veomni"
}
"""Those of the others, which judge other models than the plugin, are in test_diffusion_live.py; those of SGLang are
tested beside it."""
VARIANTS = [variant for variant in read_variants() if variant.rule in LIVE]
EXAMPLES = [
    (rule, kind, edits)
    for rule in LIVE.values()
    for kind, examples in (("BAD", rule.BAD), ("GOOD", rule.GOOD))
    for edits in examples
    if rule.level == "import"
]
FIRST = {(rule.id, kind): number for number, (rule, kind, _) in reversed([*enumerate(EXAMPLES)])}.values()
"""The first example of either kind of each rule."""
IMPORTED = [variant for variant in VARIANTS if LIVE[variant.rule].level == "import"]
LOADED = [variant for variant in VARIANTS if LIVE[variant.rule].level == "toy"]
QUICK = {(variant.rule, variant.findings > 0): variant for variant in reversed(LOADED)}.values()
"""The first variant of either kind of each rule that loads a toy; of those that import, the examples are quick."""


def _copy(olmoe: Path, place: Path, edits: Edits) -> Path:
    shutil.copytree(olmoe, place / "olmoe")
    for name, text in edits.items():
        assert isinstance(text, str)
        (place / "olmoe" / name).write_text(text, encoding="utf-8")
    return place / "olmoe"


Reports = dict[tuple[str, int], Report]


def _run(level: str, all_edits: dict[tuple[str, int], Edits], olmoe: Path, root: Path) -> Reports:
    """One run over a plugin for each set of edits; a report for each, which cases with the same edits share."""
    keys = {case: frozenset(edits.items()) for case, edits in all_edits.items()}
    copies = {
        key: _copy(olmoe, root / str(number), dict(key)) for number, key in enumerate(dict.fromkeys(keys.values()))
    }
    paths = {case: copies[key] for case, key in keys.items()}
    whole = check([*copies.values()], select=["VEO9"], level=level)
    return {
        case: Report(
            findings=[finding for finding in whole.findings if finding.path.is_relative_to(path)],
            results=[result for result in whole.results if result.model == path],
        )
        for case, path in paths.items()
    }


@pytest.fixture(scope="module")
def imported(request: pytest.FixtureRequest, olmoe: Path, tmp_path_factory: pytest.TempPathFactory) -> Reports:
    edits: dict[tuple[str, int], Edits] = {
        **{("test_example", number): example for number, (_, _, example) in enumerate(EXAMPLES)},
        **{("test_variant", number): variant.edits for number, variant in enumerate(IMPORTED)},
    }
    chosen = {case: edits[case] for case in asked(request)}
    return _run("import", chosen, olmoe, tmp_path_factory.mktemp("imported"))


@pytest.fixture(scope="module")
def loaded(request: pytest.FixtureRequest, olmoe: Path, tmp_path_factory: pytest.TempPathFactory) -> Reports:
    chosen: dict[tuple[str, int], Edits] = {case: LOADED[case[1]].edits for case in asked(request)}
    return _run("toy", chosen, olmoe, tmp_path_factory.mktemp("loaded"))


def _of(rule: str, report: Report) -> list[Finding]:
    return [finding for finding in report.findings if finding.rule == rule]


def _agrees(variant: Variant, report: Report) -> None:
    findings = _of(variant.rule, report)
    assert bool(findings) == bool(variant.findings), report.findings
    assert not findings or any(variant.says in finding.message for finding in findings), findings
    (status,) = [result.status for result in report.results if result.rule == variant.rule]
    assert status == ("fail" if variant.findings else "pass")


class TestImport:
    @pytest.mark.parametrize(
        "number", sampled(range(len(EXAMPLES)), *FIRST), ids=[f"{rule.id}-{kind}" for rule, kind, _ in EXAMPLES]
    )
    def test_example(self, number: int, imported: Reports) -> None:
        rule, kind, _ = EXAMPLES[number]
        report = imported["test_example", number]
        assert bool(_of(rule.id, report)) == (kind == "BAD"), report.findings

    @pytest.mark.sweep
    @pytest.mark.parametrize("number", range(len(IMPORTED)), ids=map(str, IMPORTED))
    def test_variant(self, number: int, imported: Reports) -> None:
        _agrees(IMPORTED[number], imported["test_variant", number])


class TestToy:
    @pytest.mark.sweep
    @pytest.mark.parametrize("number", sampled(range(len(LOADED)), *map(LOADED.index, QUICK)), ids=map(str, LOADED))
    def test_variant(self, number: int, loaded: Reports) -> None:
        _agrees(LOADED[number], loaded["test_variant", number])

    @pytest.mark.sweep
    def test_a_model_of_veomni_itself(self, veomni_models: Path) -> None:
        report = check([veomni_models / "qwen2_vl", veomni_models / "llama"], select=["VEO9"], level="toy")
        rules = {(finding.path.parent.name, finding.rule) for finding in report.findings}
        # "Can't pickle local object 'Qwen2VLForConditionalGeneration.get_position_id_func.<locals>.get_position_id'";
        # of a checkpoint that transformers saves as the hub has it, 57 of 58 tensors are never loaded
        assert rules == {
            *((model, "VEO902") for model in ("qwen2_vl", "llama")),
            ("qwen2_vl", "VEO904"),
            ("qwen2_vl", "VEO905"),
        }


class TestLevel:
    @pytest.mark.parametrize("rule", LIVE.values(), ids=lambda rule: rule.id)
    def test_a_rule_is_not_judged_below_its_level(self, rule: type[Rule], olmoe: Path) -> None:
        with pytest.raises(BadInput, match="no rule is selected"):
            check([olmoe], select=[rule.id])

    def test_an_unknown_level_is_bad_input(self, olmoe: Path) -> None:
        with pytest.raises(BadInput, match="unknown level 'gpu'"):
            check([olmoe], level="gpu")

    def test_what_is_not_installed_is_said_with_the_command(
        self, olmoe: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
        assert main(["check", str(olmoe), "--level", "import", "--no-cache"]) == 3
        error = capsys.readouterr().err
        assert "needs veomni, which is not installed" in error
        assert "pip install" in error

    def test_a_run_that_dies_is_a_finding(self, olmoe: Path, tmp_path: Path) -> None:
        path = _copy(olmoe, tmp_path, {"__init__.py": "import os\n\nos._exit(7)\nMODELING_REGISTRY['olmoe'] = None\n"})
        (finding,) = _of("VEO901", check([path], select=["VEO901"], level="import"))
        assert "process ended with code 7" in finding.message


def test_verdicts_of_runs_are_not_kept(olmoe: Path, tmp_path: Path) -> None:
    """They depend on packages and devices that no digest covers."""
    from omni_checkers.engine.cache import Cache

    path = _copy(olmoe, tmp_path, {})
    report = check([path], cache=Cache(tmp_path / "cache"), level="import")
    assert {result.rule for result in report.results} >= {"VEO101", "VEO901"}
    (kept,) = (tmp_path / "cache").rglob("*.json")
    _, _, text = kept.read_text(encoding="utf-8").partition("\n")  # the first line is its code
    assert set(json.loads(text)["verdicts"]) & LIVE.keys() == set()


@pytest.mark.sweep
def test_the_worked_examples_stand_when_their_hooks_are_run() -> None:
    """Each class that an integration registers is asked, not the one that the parity levels run."""
    paths = sorted(path.parent for path in (resource_dir("reference_models") / "veomni").glob("*/.omni-kit.toml"))
    report = check(paths, level="import")
    assert {result.model for result in report.results if result.rule == "VEO907"} >= set(paths)
    assert not report.findings
