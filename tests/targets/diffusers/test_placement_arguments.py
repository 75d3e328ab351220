"""Constructors of ports have no `device` and `dtype` that authors only pass on."""

from pathlib import Path

import pytest

from tests.targets.diffusers.test_porting import ported

MODEL = """
def made(width, device=None):
    return nn.Linear(width, width, device=device)


class Part(nn.Module):
    def __init__(self, width, *, dtype=None, device=None):
        placed = {"device": device, "dtype": dtype}
        super().__init__()
        self.layer = nn.Linear(width, width, **placed)
        self.weight = nn.Parameter(torch.ones(width, device=device, dtype=dtype))
        self.other = made(width, device=device)

    def forward(self, x):
        return self.other(self.layer(x)) * self.weight


class Net(nn.Module):
    def __init__(self, width=8, device=None, dtype=None):
        super().__init__()
        factory = dict(device=device, dtype=dtype)
        self.parts = nn.ModuleList([Part(width, **factory) for _ in range(2)])

    def forward(self, x, t):
        for part in self.parts:
            x = part(x)
        return x
"""


def test_arguments_that_are_only_passed_on_are_left_out(tmp_path: Path) -> None:
    text = ported(tmp_path, MODEL).text
    assert "dtype" not in text
    assert text.count("device") == 3  # of the function
    assert "def __init__(self, width):" in text
    assert "torch.ones(width)" in text


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("device=None):\n        placed", 'device="cpu"):\n        placed'),
        ("Part(width, **factory)", "Part(width, dtype=torch.float64)"),
        ("**placed)", "**placed)\n        self.kind = dtype"),
        ("device=None):\n    return", 'device="cpu"):\n    return'),
        ("placed = {", 'placed = {"bias": False, '),
    ],
)
def test_arguments_with_another_use_stay(old: str, new: str, tmp_path: Path) -> None:
    assert old in MODEL
    text = ported(tmp_path, MODEL.replace(old, new)).text
    assert "torch.ones(width, device=device, dtype=dtype)" in text
