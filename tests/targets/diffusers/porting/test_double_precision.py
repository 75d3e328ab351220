"""float64 is for devices that have it."""

import ast
from pathlib import Path

import pytest

from tests.targets.diffusers.porting.small_models import ported

BY_DEVICE = """
class Block(nn.Linear):
    pass


class Net(nn.Module):
    def __init__(self, dim=8, depth=2):
        super().__init__()
        self.blocks = nn.ModuleList([Block(dim, dim) for _ in range(depth)])

    def forward(self, x, t):
        places = {call}
        for i in range(len(self.blocks) // 2, len(self.blocks)):
            self.blocks[i].train()
        for i, block in enumerate(self.blocks):
            x = block(x)
        return x + places.float()
"""
_SUPPORTED = 'torch.float32 if x.device.type in ("mps", "npu") else torch.float64'


@pytest.mark.parametrize(("call", "written"), [
    ("torch.arange(8, dtype=torch.float64, device=x.device)",
     f"torch.arange(8, dtype={_SUPPORTED}, device=x.device)"),
    ("x[:, 0].to(torch.float64)", f"x[:, 0].to({_SUPPORTED})"),
    ("x.double()", f"x.to({_SUPPORTED})"),
    ("torch.arange(8, dtype=torch.float64)", "torch.arange(8, dtype=torch.float64)"),  # on a CPU
    ("torch.arange(8).to(torch.float64)", "torch.arange(8).to(torch.float64)"),
    ("x.to(torch.float32)", "x.to(torch.float32)"),
])  # fmt: skip
def test_float64_is_for_devices_that_have_it(call: str, written: str, tmp_path: Path) -> None:
    """A loop over numbers of blocks is none over blocks."""
    import torch

    found = ported(tmp_path, BY_DEVICE.replace("{call}", call))
    text = ast.unparse(ast.parse(found.text.replace("hidden_states", "x")))
    assert f"places = {ast.unparse(ast.parse(written))}" in text
    assert found.forward.blocks == {"blocks": "TinyBlock"}
    x = torch.arange(16.0).reshape(2, 8)
    names = {"torch": torch, "x": x}
    assert torch.equal(eval(written, dict(names)), eval(call, dict(names)))
