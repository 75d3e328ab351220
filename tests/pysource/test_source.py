"""Reading source files leaves no garbage behind; a file of a later Python is reported with its version."""

import subprocess
import sys
from pathlib import Path

import pytest

from omni_kit.errors import BadInput
from omni_kit.pysource.source import read_source
from omni_kit.upstream.repositories.repository import Repository

READS = """
import sys
from omni_kit.pysource import source

OBJECTS = 50_000
source._FEW = 10 * OBJECTS
bound = 2 * max(sys.getallocatedblocks(), source._FEW) + 2 * OBJECTS
for _ in range(15):
    with source.without_collection():
        for _ in range(OBJECTS):
            cycle = []
            cycle.append(cycle)
    assert sys.getallocatedblocks() < bound
"""
"""In a process of its own, which is small: in one that holds millions of objects, it takes millions to see any."""


def test_cycles_are_freed_in_a_process_that_reads_again_and_again() -> None:
    done = subprocess.run([sys.executable, "-c", READS], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("name", "says", "newer"), [
    ("pyproject.toml", 'requires-python = ">=3.99"', True),
    ("setup.py", 'setup(python_requires=">=3.99")', True),
    ("pyproject.toml", 'requires-python = ">=3.8"', False),
    ("notes.txt", 'requires-python = ">=3.99"', False),
])  # fmt: skip
def test_syntax_of_a_later_python_is_reported_with_that_python(
    name: str, says: str, newer: bool, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(says)
    (tmp_path / "m.py").write_text("type of nothing\n")
    with pytest.raises(BadInput) as caught:
        read_source(Repository("repository", tmp_path), tmp_path / "m.py")
    assert ("requires Python 3.99" in caught.value.message) is newer
    assert bool(caught.value.hint) is newer


def test_names_come_through_imports_of_everything(tmp_path: Path) -> None:
    for name, text in {
        "a": "from b import *\nfrom c import *\n", "b": "from a import *\nclass Base: ...\nclass _Own: ...\n",
        "c": "from d import size\n", "d": "size = 3\ndef made(): ...\n",
    }.items():  # fmt: skip
        (tmp_path / f"{name}.py").write_text(text)
    source = read_source(Repository("repository", tmp_path), tmp_path / "a.py")
    found = source.resolve_class("Base")
    assert found is not None
    assert found[1].name == "Base"
    assert source.resolve_constant("size") is not None
    assert source.resolve_class("_Own") is None
    assert source.resolve_function("made") is None
