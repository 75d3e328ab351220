"""Formatting, atomic writing, and the diff."""

import os
from pathlib import Path

import pytest

from omni_kit.errors import BadInput
from omni_kit.patchgen.write import (
    compiles,
    diff_path,
    normalise,
    ruff_binary,
    settings_of,
    unified_diff,
    write_atomically,
)


def test_ruff_is_found() -> None:
    assert os.access(ruff_binary(), os.X_OK)


def test_several_texts_are_formatted_together(tmp_path: Path) -> None:
    assert normalise(["x  =  1\n", "import os\ny = 'a'\n"], tmp_path) == ["x = 1\n", 'y = "a"\n']
    assert normalise([], tmp_path) == []


def test_the_nearest_settings_count(tmp_path: Path) -> None:
    deep = tmp_path / "a" / "b"
    deep.mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text("[tool.ruff]\nline-length = 40\n")
    (tmp_path / "a" / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    assert settings_of(deep) == tmp_path / "pyproject.toml"
    (tmp_path / "a" / "ruff.toml").write_text("line-length = 50\n")
    assert settings_of(deep) == tmp_path / "a" / "ruff.toml"


def test_writing_keeps_the_mode_and_leaves_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "new" / "x.py"
    write_atomically(path, "a = 1\n")
    path.chmod(0o640)
    write_atomically(path, "a = 'é'\n")
    assert path.read_text(encoding="utf-8") == "a = 'é'\n"
    assert path.stat().st_mode & 0o777 == 0o640
    assert list(path.parent.iterdir()) == [path]


def test_a_place_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput) as caught:
        write_atomically(tmp_path / "file" / "x.py", "a = 1\n")
    assert "-o" in caught.value.hint


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "x.py"
    write_atomically(path, "old\n")
    with pytest.raises(UnicodeEncodeError):
        write_atomically(path, "\ud800")
    assert path.read_text() == "old\n"
    assert list(tmp_path.iterdir()) == [path]


def test_diff_is_empty_for_the_same_text() -> None:
    assert unified_diff("a\n", "a\n", "m.x", "x.py") == ""
    changed = unified_diff("a\n\nb\n", "a\n\nc\n", "m.x", "x.py")
    assert changed == "--- a/m/x.py\n+++ b/x.py\n@@ -1,3 +1,3 @@\n a\n\n-b\n+c\n"
    assert diff_path(Path("g/x.py")) == Path("g/x.diff")


def test_compiles_tells_what_is_wrong() -> None:
    assert compiles("x = 1\n", "x.py") is None
    wrong = compiles("return 1\n", "x.py")
    assert wrong is not None
    assert wrong.lineno == 1
