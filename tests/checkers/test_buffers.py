"""Where a converter keeps the tensors that it is given."""

import ast
from pathlib import Path
from textwrap import dedent

import pytest

from omni_checkers.engine.files import read_file
from omni_checkers.veomni.facts.buffers import unchecked_buffers
from omni_checkers.veomni.facts.conversion import ConverterClass

ONWARDS = """
class Converter:
    def convert(self, name, tensor):
        self.last["all"] = self.middle
        self.middle["all"] = self.first
        self.first[name] = tensor
"""
ROUND = """
class Converter:
    def convert(self, name, tensor):
        self.keep(name, tensor)

    def keep(self, name, value):
        self.first[name] = value
        self.convert(name, self.first)
"""
WITHOUT = """
class Converter:
    def convert(self, name):
        self.names[name] = name
"""
COLLECTED = """
class Converter:
    def convert(self, name, tensor):
        self.tied[name] = tensor
        self.parts[name] = tensor

    def finalize(self):
        for name in self.parts:
            print(name)
        {answer}

    def _tied(self):
        return [*self.tied.items()]
"""


def buffers(tmp_path: Path, text: str) -> list[str]:
    """All buffers of the converter that a file defines."""
    return both(tmp_path, text)[1]


def both(tmp_path: Path, text: str) -> tuple[list[str], list[str]]:
    """Unchecked buffers, and all."""
    path = tmp_path / "converter.py"
    path.write_text(dedent(text), encoding="utf-8")
    file = read_file(path)
    node = next(file.nodes(ast.ClassDef))
    methods = {item.name: item for item in node.body if isinstance(item, ast.FunctionDef)}
    return unchecked_buffers(ConverterClass(file, node, methods))


@pytest.mark.parametrize(
    ("text", "expected"),
    [(ONWARDS, ["first", "last", "middle"]), (ROUND, ["first"]), (WITHOUT, [])],
    ids=["from one buffer to the next", "methods that call each other", "no tensor is given"],
)
def test_buffers_are_followed_to_the_end(text: str, expected: list[str], tmp_path: Path) -> None:
    assert buffers(tmp_path, text) == expected


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("return []", ["parts", "tied"]),
        ("return self._tied()", ["parts"]),
        ("return [*self.tied.items(), *self.parts.items()]", []),
    ],
)
def test_what_finalize_returns_is_not_lost(answer: str, expected: list[str], tmp_path: Path) -> None:
    assert both(tmp_path, COLLECTED.replace("{answer}", answer))[0] == expected
