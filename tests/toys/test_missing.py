"""The package behind a name that is not defined, because it is imported only where it is installed."""

import importlib
import sys
from pathlib import Path

import pytest

from omni_kit.toys.pipelines.missing import missing_package

MODULE = """\
def is_absent_package_available():
    return False


if is_absent_package_available():
    import absent_package

if True:
    present = 1


def call():
    return absent_package.clean("text")


def mistake():
    return presnt
"""


def raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> Exception:
    (tmp_path / "guarded_imports.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    module = importlib.import_module("guarded_imports")
    del sys.modules["guarded_imports"]  # another test makes one of the same name
    with pytest.raises(NameError) as caught:
        getattr(module, name)()
    return caught.value


def test_a_guarded_import_names_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert missing_package(raised(tmp_path, monkeypatch, "call")) == "absent_package"


def test_a_name_that_nothing_imports_names_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert missing_package(raised(tmp_path, monkeypatch, "mistake")) is None


@pytest.mark.parametrize(
    ("said", "package"),
    [
        ("`cosmos_guardrail` is not installed. Please install it", "cosmos_guardrail"),
        ("Qwen2VLVideoProcessor requires the Torchvision library but it was not found", "torchvision"),
        ("cannot import name 'x' from 'y'", None),
    ],
)
def test_an_import_error_names_its_package(said: str, package: str | None) -> None:
    assert missing_package(ImportError(said)) == package
