"""The line that ends what `new-model` prints: what is left to do, and why the exit code is 1."""

from typing import Any

import pytest

from omni_kit.cli.new_model import _summary

TODO: dict[str, Any] = {"path": "a.py", "line": 1, "what": "write the denoising steps"}
NAMED = TODO | {"what": "Undefined name `x` (F821)"}
ERROR: dict[str, Any] = {"rule": "DFU215", "severity": "error", "marked": True}
FINDS = "exit code 1, because `omni-kit check` finds"


@pytest.mark.parametrize(("todo", "apart", "findings", "line"), [
    ([], [], [], "written, with 0 to-dos"),
    ([TODO], [], [ERROR], f"written, with 1 to-do; {FINDS} DFU215; done to-dos resolve these"),
    ([TODO, NAMED], [], [ERROR], f"written, with 2 to-dos; {FINDS} DFU215, F821; done to-dos resolve these"),
    ([], [ERROR], [ERROR], f"written, with 0 to-dos and 1 finding apart from them; {FINDS} DFU215"),
    ([], [ERROR | {"severity": "warning"}], [], "written, with 0 to-dos and 1 finding apart from them"),
])  # fmt: skip
def test_the_last_line(todo: list[Any], apart: list[Any], findings: list[Any], line: str) -> None:
    assert _summary(todo, apart, findings) == line
