"""What NumPy has no longer is written as every version has it."""

from pathlib import Path

import pytest

from tests.targets.diffusers.porting.small_models import HEAD, ported

NET = """
class Net(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.proj = nn.Linear(dim, dim)
        self.scale = {value}

    def forward(self, x, t):
        return self.proj(x) * float(self.scale)
"""


@pytest.mark.parametrize(("value", "written"), [
    ("numbers.product((dim, 2))", "numbers.prod((dim, 2))"),
    ("numbers.arange(dim, dtype=numbers.int)[1]", "numbers.arange(dim, dtype=int)[1]"),
    ("numbers.math.sqrt(dim)", "math.sqrt(dim)"),
    ("numbers.float32(dim)", "numbers.float32(dim)"),
])  # fmt: skip
def test_removed_names_of_numpy_are_those_of_every_version(value: str, written: str, tmp_path: Path) -> None:
    found = ported(tmp_path, NET.format(value=value), f"{HEAD}import numpy as numbers\n")
    assert f"self.scale = {written}" in found.text
    assert ("import math" in found.text) == ("math." in written)
