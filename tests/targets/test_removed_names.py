"""Names that a framework imports, put back from the installed version of a library."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from omni_kit.targets.removed_names import restore_names, said

OLD = '''"""An older module."""

from dataclasses import dataclass


class Base:
    """What the newer one has, too."""


def helper() -> int:
    return 3


@dataclass
class Gone(Base):
    """What a framework imports."""

    count: int = helper()
'''
NEW = '"""A newer module."""\n\n\nclass Base:\n    """As before."""\n'


@pytest.fixture
def framework(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A framework that needs the older transformers, which is installed behind a newer one."""
    for version, text in (("2.0", NEW), ("1.0", OLD)):
        package = tmp_path / version / "transformers"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text(f'__version__ = "{version}"\n', encoding="utf-8")
        (package / "outputs.py").write_text(text, encoding="utf-8")
    own = tmp_path / "1.0" / "some_framework"
    own.mkdir()
    uses = "from transformers.outputs import Base, Gone\n"
    (own / "__init__.py").write_text(uses, encoding="utf-8")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "2.0"), str(tmp_path / "1.0"), *sys.path])
    for name in [one for one in sys.modules if one.partition(".")[0] in ("transformers", "some_framework")]:
        monkeypatch.delitem(sys.modules, name)
    yield "some_framework"
    for name in ("transformers", "transformers.outputs", "some_framework"):
        sys.modules.pop(name, None)


def test_a_gone_name_comes_back_with_what_it_needs(framework: str) -> None:
    restored = restore_names(framework)
    assert [(one.module, one.name, one.where) for one in restored] == [
        ("transformers.outputs", "Gone", "some_framework/__init__.py:1")
    ]
    assert said(restored).startswith("removed names were taken from transformers 1.0")
    module = importlib.import_module(framework)
    assert module.Gone().count == 3
    assert issubclass(module.Gone, importlib.import_module("transformers.outputs").Base)


def test_the_version_that_a_framework_was_made_for_is_left_alone(
    framework: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path / "1.0")])
    assert restore_names(framework) == []
    assert said([]) == ""
