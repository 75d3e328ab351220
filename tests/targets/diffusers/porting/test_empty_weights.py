"""Tables that a constructor makes, where a model is made with empty weights: shown by loading it."""

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.targets.diffusers.porting.small_models import ported

NET = """from torch import nn
import torch


class Net(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.proj = nn.Linear(dim, dim)
        self.dim = dim
        {made}

    @property
    def device(self):
        return self.proj.weight.device

    def make(self):
        self.register_buffer("table", torch.linspace(0, 1, self.dim, device=self.device), persistent=False)

    def forward(self, x, t):
        return self.proj(x) + self.table
"""


@pytest.mark.parametrize("made", [
    "self.make()",
    "self.register_buffer('table', torch.linspace(0, 1, dim, device=self.device), persistent=False)",
])  # fmt: skip
def test_a_table_is_there_after_loading(made: str, tmp_path: Path) -> None:
    read: dict[str, Any] = {}
    exec(compile(ported(tmp_path, NET.format(made=made)).text, "<port>", "exec", dont_inherit=True), read)
    cls = read["TinyTransformer2DModel"]
    model = cls()
    model.save_pretrained(tmp_path / "saved")
    again = cls.from_pretrained(tmp_path / "saved")
    latents, time = torch.ones(1, 2, 8), torch.ones(1)
    assert torch.equal(again(latents, time)[0], model(latents, time)[0])


def test_a_device_that_forward_asks_for_stays(tmp_path: Path) -> None:
    made = "self.make()"
    text = NET.format(made=made).replace("+ self.table", "+ torch.zeros(1, device=self.device)")
    assert "torch.zeros(1, device=self.device)" in ported(tmp_path, text).text
