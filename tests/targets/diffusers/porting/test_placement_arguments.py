"""Constructors of ports have no `device` and `dtype` that authors only pass on."""

from pathlib import Path

import pytest

from tests.targets.diffusers.porting.small_models import ported

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


PLACED = """
class Net(nn.Module):
    def __init__(self, *, device: torch.device, dtype: torch.dtype, width: int = 4):
        super().__init__()
        self.proj = nn.Linear(width, width, device=device, dtype=dtype)

    def forward(self, x, t):
        return self.proj(x)
"""


def test_torch_decides_where_and_in_which_dtype_a_model_is_made(tmp_path: Path) -> None:
    text = ported(tmp_path, PLACED).text
    init = text.partition("def __init__(")[2].partition(")")
    assert "width: int = 4" in init[0]
    assert "device" not in init[0]
    assert "dtype = torch.get_default_dtype()" in init[2]
    assert "device = None" in init[2]
    by_default = PLACED.replace("dtype: torch.dtype,", "dtype: torch.dtype = torch.bfloat16,")
    assert "dtype = torch.get_default_dtype()" in ported(tmp_path, by_default).text
