"""Formatting, compiling, and the diff."""

from pathlib import Path

from omni_kit.patchgen.write import compiles, diff_path, normalise, settings_of, unified_diff


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
