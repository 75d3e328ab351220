"""The line that ends what `new-model` prints: what is left to do, and why the exit code is 1."""

from typing import Any

import pytest

from omni_kit.cli.new_model import _summary

TODO: dict[str, Any] = {"path": "a.py", "line": 1, "what": "write the denoising steps"}
NAMED = TODO | {"what": "Undefined name `x` (F821)"}
ERROR: dict[str, Any] = {"rule": "DFU215", "severity": "error", "marked": True}


@pytest.mark.parametrize(("todo", "apart", "findings", "line"), [
    ([], [], [], "written, with 0 to-dos"),
    ([TODO], [], [ERROR], "written, with 1 to-do; exit code 1: DFU215 fails, until the to-dos are done"),
    ([TODO, NAMED], [], [ERROR], "written, with 2 to-dos; exit code 1: DFU215, F821 fail, until the to-dos are done"),
    ([], [ERROR], [ERROR], "written, with 0 to-dos and 1 finding apart from them; exit code 1: DFU215 fails"),
    ([], [ERROR | {"severity": "warning"}], [], "written, with 0 to-dos and 1 finding apart from them"),
])  # fmt: skip
def test_the_last_line(todo: list[Any], apart: list[Any], findings: list[Any], line: str) -> None:
    assert _summary(todo, apart, findings) == line
