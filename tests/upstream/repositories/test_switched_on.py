"""Optional conditions that are off by default, and on where the authors make the model."""

from pathlib import Path

import pytest

from omni_kit.upstream.repositories.reference import find_reference
from omni_kit.upstream.repositories.switched_on import switched_on

MODEL = """
from torch import nn


class Net(nn.Module):
    def __init__(self, width, near_dim=None, far_dim=None, mlp_dim=None, obs_dim=0):
        super().__init__()

    def forward(self, x, t, near=None, far=None, obs=None):
        return x
"""


@pytest.mark.parametrize(("calls", "on"), [
    (["Net(8, near_dim=None, far_dim=wide)"], ["far_dim"]),
    (["Net(8, None, wide, obs_dim=size)"], ["far_dim", "obs_dim"]),
    (["Net(8, far_dim=9)", "Net(8, far_dim=wide)"], ["far_dim"]),
    (["Net(8, far_dim=None)", "Net(8, far_dim=wide)"], []),
    (["Net(8, mlp_dim=wide)"], []),
    (["Other(8, far_dim=wide)"], []),
    ([], []),
])  # fmt: skip
def test_a_condition_is_on_where_calls_work_its_width_out(calls: list[str], on: list[str], tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(MODEL)
    lines = "".join(f"    net = {one}\n" for one in calls)
    (tmp_path / "policy.py").write_text(f"from model import Net\n\n\ndef made(wide, size):\n{lines}    return size\n")
    assert switched_on(find_reference(f"{tmp_path}/model.py::Net")) == on
