"""What a class needs."""

from pathlib import Path

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
