"""What only a run can tell: the examples of the rules, each built in a process of its own."""

import shutil
from pathlib import Path

import pytest

from omni_checkers import all_rules, check
from omni_checkers.diffusers.examples import LUMEN
from omni_kit.errors import MissingRequirement
from tests.conftest import first

from .conftest import Package

RULES = [rule for rule in all_rules() if rule.id.startswith("DFU") and rule.level == "import"]
LUMEN_MODEL = Path(__file__).parents[3] / "reference_models" / "diffusers" / "lumen"


@pytest.mark.parametrize("most", first(1, [1, 9]))
def test_runs_find_what_is_wrong_and_nothing_else(most: int, tmp_path: Path) -> None:
    places: dict[tuple[str, str], dict[str, str]] = {("fine", ""): {}} | {
        (rule.id.lower(), str(index)): dict(bad) for rule in RULES for index, bad in enumerate(rule.BAD[:most])
    }
    for (name, index), edits in places.items():
        folder = tmp_path / f"{name}{index}"
        folder.mkdir()
        for file, text in {**LUMEN, **edits}.items():
            (folder / file).write_text(text, encoding="utf-8")
    shutil.copytree(LUMEN_MODEL, tmp_path / "lumen")
    report = check([tmp_path], target="diffusers", level="import", select=[rule.id for rule in RULES])
    found = {(finding.path.parent.name, finding.rule) for finding in report.findings}
    for name, index in places:
        said = {rule.lower() for place, rule in found if place == f"{name}{index}"}
        assert (name in said) == (name != "fine"), (name, index, report.findings)
    assert not [one for one in found if one[0] in ("fine", "lumen")]


def test_a_package_without_a_model_has_nothing_to_be_built() -> None:
    report = check([LUMEN_MODEL.parent / "wan_t2v_blocks"], target="diffusers", level="import")
    assert not report.findings


def test_what_needs_diffusers_is_not_tested_without_it(package: Package, monkeypatch: pytest.MonkeyPatch) -> None:
    path = package({})
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingRequirement, match="--level import needs diffusers"):
        check([path], target="diffusers", level="import")
