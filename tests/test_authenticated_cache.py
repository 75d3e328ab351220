"""Files of the cache are used only where this user's omni-kit wrote them, under the same name."""

from pathlib import Path

import pytest

from omni_kit.authenticated_cache import own_key, read_keyed, write_keyed


@pytest.fixture(autouse=True)
def _config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    write_keyed(tmp_path / "cache" / "entry.json", '{"a": "ä\\n"}\n')
    return tmp_path / "cache" / "entry.json"


def test_what_was_written_is_read(file: Path) -> None:
    assert read_keyed(file) == '{"a": "ä\\n"}\n'


def test_what_was_changed_is_not(file: Path) -> None:
    file.write_text(file.read_text(encoding="utf-8").replace("a", "b"), encoding="utf-8")
    with pytest.raises(ValueError, match="was not written by"):
        read_keyed(file)


def test_what_was_written_under_another_name_is_not(file: Path) -> None:
    other = file.with_name("other.json")
    other.write_bytes(file.read_bytes())
    with pytest.raises(ValueError, match="was not written by"):
        read_keyed(other)


def test_what_was_written_with_another_key_is_not(file: Path, tmp_path: Path) -> None:
    (tmp_path / "config" / "omni-kit" / "key").unlink()
    with pytest.raises(ValueError, match="was not written by"):
        read_keyed(file)


@pytest.mark.parametrize("content", ["", "00", "no key", "é"])
def test_a_key_that_is_none_is_made_again(content: str, tmp_path: Path) -> None:
    key = tmp_path / "config" / "omni-kit" / "key"
    key.parent.mkdir(parents=True)
    key.write_text(content, encoding="utf-8")
    assert len(own_key()) == 32
    assert own_key() == own_key()
    assert key.stat().st_mode & 0o777 == 0o600


def test_without_a_place_for_the_key_nothing_is_kept(tmp_path: Path) -> None:
    (tmp_path / "config").write_text("", encoding="utf-8")
    write_keyed(tmp_path / "cache" / "entry.json", "text")
    assert own_key() == b""
    assert not (tmp_path / "cache").exists()
