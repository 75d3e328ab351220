"""Annotations of packages that diffusers does not need are left out."""

from pathlib import Path

from tests.targets.diffusers.porting.small_models import ported

ANNOTATED = """
import no_such_types
from no_such_types import Shaped


class Typing:
    def __init__(self, kind):
        self.kind = kind

    def __getitem__(self, shape):
        return self.kind[torch.Tensor, shape]


Float = Typing(no_such_types.Float)
SCALE = {scale}


def scaled(t: Float["b"], by: float = 2.0) -> Float["b"] | None:
    # by a number
    half: Shaped["b"] = t * by
    return half * SCALE


class Net(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.proj = nn.Linear(dim, dim)

    def forward(self, x: "torch.Tensor", t: Float["b"] = None):
        return self.proj(x) * scaled(t)
"""


def test_types_of_packages_that_diffusers_does_not_need_are_left_out(tmp_path: Path) -> None:
    found = ported(tmp_path, ANNOTATED.format(scale="3.0")).text
    assert "def scaled(t, by: float = 2.0):" in found
    assert "    # by a number\n    half = t * by\n" in found
    assert "no_such_types" not in found
    assert "Typing" not in found


def test_parentheses_around_such_types_are_left_out(tmp_path: Path) -> None:
    around = ANNOTATED.format(scale="3.0").replace(
        '-> Float["b"] | None:', '-> (\n    Float["b"] |\n    None  # maybe\n):'
    )
    found = ported(tmp_path, around.replace('t: Float["b"], by', 't: ((Float["b"])), by')).text
    assert "def scaled(t, by: float = 2.0):" in found


def test_packages_that_code_computes_with_stay(tmp_path: Path) -> None:
    found = ported(tmp_path, ANNOTATED.format(scale="Shaped.scale")).text
    assert "no_such_types" in found
    assert "no_such_types.Float" not in found
