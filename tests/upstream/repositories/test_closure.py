"""What a class needs."""

from pathlib import Path

import pytest

from omni_kit.upstream.repositories.reference import find_reference

MODEL = """
import torch
from torch import nn
from timm.layers import helpers
from .parts import Scale


class Kept(torch.autograd.Function):
    pass


class Lantern(nn.Module):
    def forward(self, x, t):
        return Scale.of(Kept.apply(x), helpers.to_2tuple(t))
"""


def test_a_class_of_which_only_a_method_is_called_is_needed(tmp_path: Path) -> None:
    (tmp_path / "lantern").mkdir()
    (tmp_path / "lantern" / "__init__.py").write_text("")
    (tmp_path / "lantern" / "model.py").write_text(MODEL)
    (tmp_path / "lantern" / "parts.py").write_text(
        "class Scale:\n    @classmethod\n    def of(cls, x, t):\n        return x\n"
    )
    closure = find_reference(f"{tmp_path}::Lantern").closure

    assert {one.name for one in closure.definitions} == {"Kept", "Scale", "to_2tuple", "Lantern"}
    assert {"Scale", "Kept", "helpers.to_2tuple"} == set(closure.uses[closure.definitions[-1]])


def test_what_only_lines_that_log_name_is_not_needed(tmp_path: Path) -> None:
    (tmp_path / "log.py").write_text("from loguru import logger\n\n\ndef debug(text):\n    logger.debug(text)\n")
    (tmp_path / "model.py").write_text(
        "from torch import nn\nimport log\n\n\nclass Lantern(nn.Module):\n    def forward(self, x, t):\n"
        "        log.debug(str(x))\n        return x * t\n"
    )
    closure = find_reference(f"{tmp_path}::Lantern").closure
    assert [one.name for one in closure.definitions] == ["Lantern"]
    assert closure.packages().keys() == {"torch"}


SCRIPTED = """
import torch
from torch import jit, nn


def shifted(x):
    return x + 1


{decorator}
def first(x):
    return shifted(x)


def shifted(x):
    return x + 2


class Lantern(nn.Module):
    def forward(self, x, t):
        return {forward}
"""


@pytest.mark.parametrize(("decorator", "forward", "lines"), [
    ("@torch.jit.script", "first(x)", [6]),
    ("@jit.script", "first(x) + shifted(x)", [6, 15]),
    ("@torch.no_grad()", "first(x)", [15]),
])  # fmt: skip
def test_scripted_functions_call_what_is_defined_before_them(
    decorator: str, forward: str, lines: list[int], tmp_path: Path
) -> None:
    (tmp_path / "model.py").write_text(SCRIPTED.format(decorator=decorator, forward=forward))
    closure = find_reference(f"{tmp_path}::Lantern").closure
    assert sorted(one.node.lineno for one in closure.definitions if one.name == "shifted") == lines
