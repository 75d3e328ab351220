"""Changes of shared state that a test file leaves are named; imports are no change."""

import os
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.state import changes, forget_temporary, state


def test_what_a_file_leaves_changed_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    library = ModuleType("transformers.loss.stand_in")
    library.MAPPING = {"causal": state}  # type: ignore[attr-defined]
    library.loss = changes  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, library.__name__, library)
    monkeypatch.setenv("OF_A_TEST", "1")
    before = state()
    assert [*changes(before, state())] == []
    monkeypatch.setitem(library.MAPPING, "causal", test_what_a_file_leaves_changed_is_named)
    monkeypatch.setattr(library, "loss", test_what_a_file_leaves_changed_is_named)
    monkeypatch.setenv("OF_A_TEST", "2")
    monkeypatch.setenv("OF_ANOTHER", "3")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    found = [*changes(before, state())]
    assert [one.partition(":")[0] for one in sorted(found)] == [
        "place os.getcwd()", "place sys.path",
        "transformers.loss.stand_in loss is another one", "transformers.loss.stand_in.MAPPING causal is another one",
        "variable OF_ANOTHER", "variable OF_A_TEST",
    ]  # fmt: skip
    assert f"variable OF_A_TEST: '1' became {os.environ['OF_A_TEST']!r}" in found


@pytest.mark.parametrize("folder", ["of its own", "of worked examples"])
def test_modules_of_temporary_files_and_examples_are_forgotten(
    folder: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    before = state()
    left = ModuleType("left_behind")
    place = tmp_path if folder == "of its own" else Path(__file__).parents[2] / "reference_models"
    left.__file__ = str(place / "left_behind.py")
    monkeypatch.setitem(sys.modules, "left_behind", left)
    forget_temporary(before)
    assert "left_behind" not in sys.modules
    assert sys.modules[__name__].__file__ == __file__


def test_settings_of_torch_are_told() -> None:
    torch = pytest.importorskip("torch")
    before = state()
    with torch.no_grad(), torch.device("meta"):
        assert {one.partition(":")[0] for one in changes(before, state())} == {
            "setting of torch default device", "setting of torch functions that see every operation",
            "setting of torch gradients",
        }  # fmt: skip
    assert [*changes(before, state())] == []


def test_what_is_imported_or_registered_is_no_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "wave", raising=False)
    before = state()
    import wave

    assert sys.modules["wave"] is wave
    assert [*changes(before, state())] == []
