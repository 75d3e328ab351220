"""A package to break, and a small diffusers to break what it exports."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from omni_checkers.diffusers.examples import LUMEN

Package = Callable[[Mapping[str, str]], Path]


@pytest.fixture
def package(tmp_path: Path) -> Package:
    """Writes the example, with files replaced; files of diffusers itself stand alone, in a checkout."""

    def write(edits: Mapping[str, str]) -> Path:
        checkout = any(name.startswith("src/") for name in edits)
        root = tmp_path if checkout else tmp_path / "lumen"
        for name, text in {**({} if checkout else LUMEN), **edits}.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text, encoding="utf-8")
        return root

    return write
