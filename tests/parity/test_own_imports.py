"""The candidate's process cannot import what its authors wrote."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from omni_kit.parity.processes.own_imports import Borrowed, Hidden, hide


@pytest.fixture(autouse=True)
def _restored(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    before = [*sys.modules]
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    yield
    for name in [name for name in sys.modules if name not in before]:
        del sys.modules[name]


def written(place: Path, name: str) -> None:
    (place / name).mkdir(parents=True)
    (place / name / "__init__.py").write_text("HERE = True\n")


def test_a_module_of_the_authors_cannot_be_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path / "authors", "lantern_theirs")
    monkeypatch.syspath_prepend(tmp_path / "authors")
    hide([tmp_path / "authors"], tmp_path / "port")

    with pytest.raises(Borrowed, match="lantern_theirs"):
        importlib.import_module("lantern_theirs")


def test_the_integration_itself_may_lie_in_their_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path / "authors", "lantern_port")
    written(tmp_path / "authors" / ".venv" / "site-packages", "lantern_installed")
    monkeypatch.syspath_prepend(tmp_path / "authors")
    monkeypatch.syspath_prepend(tmp_path / "authors" / ".venv" / "site-packages")
    hide([tmp_path / "authors"], tmp_path / "authors" / "lantern_port")

    assert importlib.import_module("lantern_port").HERE
    assert importlib.import_module("lantern_installed").HERE


def test_without_a_directory_nothing_is_watched(tmp_path: Path) -> None:
    hide([], tmp_path)
    assert not any(isinstance(one, Hidden) for one in sys.meta_path)


def test_another_comparison_in_the_same_process_hides_other_directories(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path / "first", "lantern_first")
    written(tmp_path / "second", "lantern_second")
    monkeypatch.syspath_prepend(tmp_path / "first")
    monkeypatch.syspath_prepend(tmp_path / "second")
    hide([tmp_path / "first"], tmp_path / "port")
    hide([tmp_path / "second"], tmp_path / "port")

    assert importlib.import_module("lantern_first").HERE
    with pytest.raises(Borrowed):
        importlib.import_module("lantern_second")
