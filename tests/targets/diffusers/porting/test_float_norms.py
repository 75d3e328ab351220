"""Norms that authors compute in float32 run in the precision that a port is cast to, with the same values."""

from pathlib import Path
from typing import Any

import pytest
import torch

from omni_kit.targets.diffusers.porting.port import Port
from tests.targets.diffusers.porting.small_models import ported

NET = """

class Norm32(nn.BASE):
    def forward(self, x):
        return RETURNED


class Net(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.norm = Norm32(ARGUMENTS)

    def forward(self, x, t):
        return self.norm(x)
"""


def norm_of(port: Port) -> Any:
    """Return the class of the norm as a port has it."""
    names: dict[str, Any] = {"nn": torch.nn, "torch": torch}
    exec("class TinyNorm32" + port.text.partition("class TinyNorm32")[2].partition("\n\n\n")[0], names)
    return names["TinyNorm32"]


@pytest.mark.parametrize(("base", "sizes", "switch", "returned"), [
    ("GroupNorm", (2, 8), "", "super().forward(x.float()).type(x.dtype)"),
    ("GroupNorm", (2, 8), "affine", "super(Norm32, self).forward(x.float()).to(x.dtype)"),
    ("LayerNorm", (8,), "", "super().forward(x.type(torch.float32)).type(x.dtype)"),
    ("LayerNorm", (8,), "elementwise_affine", "nn.LayerNorm.forward(self, x.to(torch.float32)).type_as(x)"),
])  # fmt: skip
def test_weights_are_cast_with_what_is_normed(
    base: str, sizes: tuple[int, ...], switch: str, returned: str, tmp_path: Path
) -> None:
    off = {switch: False} if switch else {}
    given = ", ".join([*map(str, sizes), *(f"{name}=False" for name in off)])
    own = norm_of(ported(tmp_path, NET.replace("BASE", base).replace("RETURNED", returned).replace("ARGUMENTS", given)))
    norm, wanted = own(*sizes, **off), getattr(torch.nn, base)(*sizes, **off)
    x = torch.randn(3, 8)
    assert torch.equal(norm(x), wanted(x))
    assert norm.to(torch.bfloat16)(x.bfloat16()).dtype == torch.bfloat16


def test_a_norm_that_casts_nothing_stays(tmp_path: Path) -> None:
    text = NET.replace("BASE", "LayerNorm").replace("RETURNED", "super().forward(x)").replace("ARGUMENTS", "dim")
    assert "super().forward(x)" in ported(tmp_path, text).text
