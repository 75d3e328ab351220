"""Another version of a library, in place of the installed one."""

import importlib.metadata
import sys
from pathlib import Path

import pytest

from omni_kit.errors import BadInput
from omni_kit.isolation.worker import environment
from omni_kit.pysource.library import find_library, used_instead


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """A diffusers of another version, with its metadata, among other packages."""
    for package in ("diffusers", "numpy"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text('__version__ = "99.1"\n', encoding="utf-8")
    metadata = tmp_path / "diffusers-99.1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: diffusers\nVersion: 99.1\n", encoding="utf-8")
    return tmp_path


def test_it_is_found_first_while_it_is_used_and_nothing_else_is(other: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "diffusers", raising=False)  # it is meant for processes that have not imported it
    installed, numpy = find_library("diffusers").version, find_library("numpy").root
    with used_instead({"diffusers": other, "transformers": None}) as first:
        assert find_library("diffusers").version == "99.1"
        assert importlib.metadata.version("diffusers") == "99.1"
        assert find_library("numpy").root == numpy
        assert environment("omni_kit.x:y", first, None)["PYTHONPATH"].startswith(str(first[0]))
    assert find_library("diffusers").version == installed
    assert not {str(one) for one in first} & {*sys.path}


def test_nothing_given_changes_nothing() -> None:
    before = [*sys.path]
    with used_instead({"diffusers": None}) as first:
        assert first == []
        assert sys.path == before


def test_a_directory_without_it_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="contains no diffusers package"), used_instead({"diffusers": tmp_path}):
        pass
