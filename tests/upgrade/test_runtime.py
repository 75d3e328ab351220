"""A framework's own code against two versions of a library: each break is named by its line, and nothing else is."""

from pathlib import Path
from textwrap import dedent

import pytest

from omni_kit.upgrade.runtime import broken_uses

LOSS = """
def cross_entropy(logits, labels, shift=True):
    return 0


class Head:
    def forward(self):
        return 1
"""
OLD = {"__init__.py": "", "loss.py": LOSS, "old_module.py": "x = 1\n"}
NEW = {"__init__.py": "", "loss.py": LOSS.replace(", shift=True", "").replace("forward", "run")}


@pytest.fixture
def versions(tmp_path: Path) -> tuple[Path, Path]:
    """The directories of both versions of a small library."""
    for side, files in (("old", OLD), ("new", NEW)):
        for name, text in files.items():
            path = tmp_path / side / "small" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    return tmp_path / "old" / "small", tmp_path / "new" / "small"


def found(text: str, tmp_path: Path, versions: tuple[Path, Path]) -> list[tuple[int, str]]:
    file = tmp_path / "framework.py"
    file.write_text(dedent(text).lstrip("\n"), encoding="utf-8")
    return [(one.line, one.what) for one in broken_uses([file], "small", *versions, tmp_path)]


@pytest.mark.parametrize(
    ("text", "line", "word"),
    [
        ("from small.old_module import x\n", 1, "small.old_module"),
        ("import small.old_module\n", 1, "small.old_module"),
        (
            "import small.loss\n\nsmall.loss.Gone = 1\nfrom small.loss import Head\nHead.forward = None\n",
            5,
            "Head.forward",
        ),
        ("from small.loss import cross_entropy\n\ncross_entropy(1, 2, shift=False)\n", 3, "shift"),
    ],
)
def test_it_names_the_line(text: str, line: int, word: str, tmp_path: Path, versions: tuple[Path, Path]) -> None:
    ((where, what),) = found(text, tmp_path, versions)
    assert where == line
    assert word in what


def test_it_stays_quiet(tmp_path: Path, versions: tuple[Path, Path]) -> None:
    text = "from small.loss import Head, cross_entropy\n\ncross_entropy(1, 2)\nHead.extra = 1\nHead.run_twice = None\n"
    assert found(text, tmp_path, versions) == []
