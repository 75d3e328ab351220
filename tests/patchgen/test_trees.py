"""before.py and a config give after.py: the cases are found in the fixture tree."""

import ast
import shutil
from pathlib import Path

import pytest

from omni_kit.patchgen import run_config
from tests.patchgen.conftest import FIXTURES

CASES = sorted(p.parent for p in (FIXTURES / "trees").glob("*/config.py"))


@pytest.fixture
def case(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of the case outside the repository, whose ruff settings do not hold here."""
    source: Path = request.param
    return shutil.copytree(source, tmp_path / source.name)


def test_cases_are_found() -> None:
    assert len(CASES) >= 6


@pytest.mark.parametrize("case", CASES, ids=lambda p: p.name, indirect=True)
def test_before_becomes_after(case: Path) -> None:
    result = run_config(case / "config.py")
    assert result.status == "written", result.diagnostics
    assert result.output == case / "generated" / "after.py"
    assert result.output.read_text(encoding="utf-8") == (case / "after.py").read_text(encoding="utf-8")


@pytest.mark.parametrize("case", CASES, ids=lambda p: p.name, indirect=True)
def test_running_again_changes_nothing(case: Path) -> None:
    first = run_config(case / "config.py")
    assert first.output is not None
    before = first.output.stat().st_mtime_ns
    assert run_config(case / "config.py").status == "unchanged"
    assert first.output.stat().st_mtime_ns == before


@pytest.mark.parametrize("case", CASES, ids=lambda p: p.name, indirect=True)
def test_result_does_not_depend_on_the_place(case: Path, tmp_path: Path) -> None:
    elsewhere = shutil.copytree(case, tmp_path / "deep" / "er" / case.name)
    assert run_config(case / "config.py").text == run_config(elsewhere / "config.py", tmp_path / "out").text


@pytest.mark.parametrize("case", CASES, ids=lambda p: p.name, indirect=True)
def test_comments_of_upstream_survive(case: Path) -> None:
    """Every comment of before.py is in the result, unless it stood inside what was replaced, dropped or excluded."""
    result = run_config(case / "config.py")
    assert result.generated is not None
    source = result.generated.source
    gone: set[int] = set()
    for applied in result.patches:
        if applied.definition is not None:
            gone.update(range(applied.definition.first_line, applied.definition.last_line + 1))
    for node in source.tree.body:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and node.name in result.generated.loaded.config.exclude:
            gone.update(range(node.lineno - 1, (node.end_lineno or 0) + 1))
    for number, line in enumerate(source.text.splitlines(), start=1):
        if "#" in line and number not in gone:
            assert line[line.index("#") :] in result.text
