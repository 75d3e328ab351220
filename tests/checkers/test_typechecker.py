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
