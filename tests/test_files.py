"""Writing files whole, inside their root, and formatted."""

import os
from pathlib import Path

import pytest

from omni_kit import formatting
from omni_kit.errors import BadInput, MissingRequirement, OmniKitError
from omni_kit.files import identifier_of, inside, plain_name, write_atomic
from omni_kit.formatting import format_python, ruff_binary
from omni_kit.isolation.programs import Finished


def test_write_replaces_and_keeps_the_mode(tmp_path: Path) -> None:
    file = tmp_path / "a" / "b.txt"
    write_atomic(file, "one")
    file.chmod(0o640)
    write_atomic(file, "two")
    assert file.read_text() == "two"
    assert file.stat().st_mode & 0o777 == 0o640
    assert os.listdir(file.parent) == ["b.txt"]


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    file = tmp_path / "b.txt"
    write_atomic(file, "old")
    with pytest.raises(UnicodeEncodeError):
        write_atomic(file, "\ud800")
    assert file.read_text() == "old"
    assert os.listdir(tmp_path) == ["b.txt"]


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BadInput, match="cannot write"):
        write_atomic(tmp_path / "file" / "below", "x")


@pytest.mark.parametrize("kind", ["directory", "pipe", "device"])
def test_what_is_not_a_file_stays(kind: str, tmp_path: Path) -> None:
    place = tmp_path / "place"
    if kind == "directory":
        place.mkdir()
    elif kind == "pipe":
        os.mkfifo(place)
    else:
        place.symlink_to("/dev/null")
    before = place.lstat()
    with pytest.raises(BadInput, match="not a regular file"):
        write_atomic(place, "x")
    assert place.lstat() == before


@pytest.mark.parametrize(("text", "name"), [
    ("SiT", "SiT"), ("sd3.5-large", "sd3_5_large"), ("4d-net", "model_4d_net"), ("_-_", "model"),
])  # fmt: skip
def test_a_name_for_code_is_an_identifier(text: str, name: str) -> None:
    assert identifier_of(text) == name


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/a", "../a", "a\\b", "a\0", "a\n", "\x1b[2J", "\u202e"])
def test_a_plain_name_leads_nowhere_else(name: str) -> None:
    assert plain_name("a-b.c_d", "the skill") == "a-b.c_d"
    with pytest.raises(BadInput, match="is not a valid name"):
        plain_name(name, "the skill")


@pytest.mark.parametrize("path", ["../x", "a/../../x", "/etc/passwd"])
def test_paths_stay_inside(tmp_path: Path, path: str) -> None:
    with pytest.raises(BadInput, match="lies outside"):
        inside(tmp_path, path)
    assert inside(tmp_path, "a/../b") == tmp_path / "a/../b"


def test_format_sorts_and_prunes_imports() -> None:
    assert format_python("import sys\nimport os\nprint( os.sep )\n", "x.py") == "import os\n\nprint(os.sep)\n"


def test_format_refuses_what_is_not_python() -> None:
    with pytest.raises(BadInput, match=r"x\.py is not valid Python"):
        format_python("def f(:\n", "x.py")


def test_ruff_is_found() -> None:
    assert os.access(ruff_binary(), os.X_OK)


@pytest.mark.parametrize(("code", "error", "refused"), [(1, "", MissingRequirement), (2, "no syntax", BadInput)])
def test_ruff_that_ends_without_a_message_is_a_fault_of_the_environment(
    code: int, error: str, refused: type[OmniKitError], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(formatting, "run_program", lambda *_, **__: Finished(code, "", error))
    with pytest.raises(refused):
        format_python("x = 1\n", "x.py")
