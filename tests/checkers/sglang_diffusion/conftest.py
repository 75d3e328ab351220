"""A plugin to break, beside what rules ask of SGLang; and SGLang's own pipelines where it is there."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from omni_checkers.sglang_diffusion.examples import QWEN
from omni_kit.errors import MissingRequirement
from omni_kit.pysource.library import find_library

STAND_IN = Path(__file__).parents[2] / "fixtures" / "sglang"
Plugin = Callable[[Mapping[str, str]], Path]


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plugin:
    """Writes the example, with files replaced."""
    monkeypatch.syspath_prepend(str(STAND_IN))

    def write(edits: Mapping[str, str]) -> Path:
        (tmp_path / "qwen").mkdir()
        for name, text in {**QWEN, **edits}.items():
            (tmp_path / "qwen" / name).write_text(text, encoding="utf-8")
        return tmp_path / "qwen"

    return write


@pytest.fixture(scope="session")
def sglang_root() -> Path:
    """The package `sglang` itself: installed, or unpacked at $SGLANG_SOURCE."""
    if place := os.environ.get("SGLANG_SOURCE"):
        return find_library("sglang", Path(place)).root
    try:
        return find_library("sglang").root
    except MissingRequirement:
        pytest.skip("SGLang is not there: install it, or unpack its wheel and name the folder in SGLANG_SOURCE")
