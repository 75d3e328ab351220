"""A type checker's word, without what upstream's own file has, and without noise."""

from pathlib import Path

import pytest

from omni_checkers.engine.typechecker import Diagnostic, drifted

UPSTREAM = """
from pathlib import Path


def first(path: Path):
    return path.their_own_mistake
"""
OWN = (
    UPSTREAM
    + """

def second(path: Path):
    return path.drifted


def third(path: Path):
    path.marked = True
    return path.npu()
"""
)


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    own, upstream = tmp_path / "own" / "model.py", tmp_path / "upstream" / "model.py"
    for file, text in ((own, OWN), (upstream, UPSTREAM)):
        file.parent.mkdir()
        file.write_text(text, encoding="utf-8")
    return own, upstream


def test_what_upstream_has_too_is_left_out_and_so_is_noise(files: tuple[Path, Path]) -> None:
    own, upstream = files
    said = "Object of type `Path` has no attribute `drifted`"
    assert drifted([own], [upstream]) == [Diagnostic(own, 10, "missing-attribute", said)]


def test_without_upstreams_file_its_mistake_counts(files: tuple[Path, Path]) -> None:
    assert [one.line for one in drifted([files[0]], [])] == [6, 10]


def test_nothing_to_read_is_nothing_to_say() -> None:
    assert drifted([], []) == []


@pytest.mark.parametrize("name", ["ty.toml", "pyproject.toml", "ty.py", ".gitignore"])
def test_no_file_of_the_tree_has_a_say_in_it(name: str, files: tuple[Path, Path]) -> None:
    """Neither settings that silence rules or leave files out, nor a module of the checker's name."""
    own, upstream = files
    head = "[tool.ty." if name == "pyproject.toml" else "["
    settings = f'{head}rules]\nall = "ignore"\n\n{head}src]\nexclude = ["**/*.py"]\n'
    text = {"ty.py": "raise SystemExit(0)\n", ".gitignore": "*.py\n"}.get(name, settings)
    for place in (own.parent, own.parents[1]):
        (place / name).write_text(text, encoding="utf-8")
    assert [one.line for one in drifted([own], [upstream])] == [10]


def test_the_users_settings_have_no_say_either(
    files: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, upstream = files
    (tmp_path / "config" / "ty").mkdir(parents=True)
    (tmp_path / "config" / "ty" / "ty.toml").write_text('[src]\nexclude = ["**/*.py"]\n', encoding="utf-8")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    assert [one.line for one in drifted([own], [upstream])] == [10]


@pytest.mark.parametrize(
    ("comment", "rules"),
    [
        ("", ["missing-attribute"]),
        ("# type: ignore", ["missing-attribute"]),
        ("# type: ignore[attr-defined]", ["missing-attribute"]),
        ("# ty: ignore", ["ignored"]),
        ("# ty:ignore[missing-attribute]", ["ignored"]),
        ("# noqa # ty: ignore[invalid-assignment, missing-attribute]", ["ignored"]),
        ("# ty: ignore[invalid-assignment]", ["missing-attribute"]),
        ('"# ty: ignore"', ["missing-attribute"]),
    ],
)
def test_a_comment_silences_nothing_without_a_word(comment: str, rules: list[str], tmp_path: Path) -> None:
    file = tmp_path / "model.py"
    statement = f"path.drifted, {comment}" if comment.startswith('"') else f"path.drifted  {comment}"
    file.write_text(f"from pathlib import Path\n\n\ndef first(path: Path):\n    return {statement}\n")
    assert [(one.line, one.rule) for one in drifted([file], [])] == [(5, rule) for rule in rules]


def test_a_comment_above_the_whole_file_is_said(tmp_path: Path) -> None:
    file = tmp_path / "model.py"
    file.write_text("# ty: ignore\nfrom pathlib import Path\n\n\ndef first(path: Path):\n    return path.drifted\n")
    assert [(one.line, one.rule) for one in drifted([file], [])] == [(1, "ignored")]


def test_relative_imports_lead_into_the_package(tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "other.py").write_text("there = 1\n", encoding="utf-8")
    file = package / "model.py"
    file.write_text("from . import other\n\nother.there\nother.gone\n", encoding="utf-8")
    assert [one.line for one in drifted([file], [])] == [4]
