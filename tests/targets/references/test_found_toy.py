"""Toys that are found by running the authors' class."""

from pathlib import Path

import pytest

from omni_kit.errors import BadInput
from omni_kit.targets.references.found_toy import find

HUGE = """
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(9000, 8000, bias=False, device="meta") for _ in range(2))

    def forward(self, x, t):
        return x
"""


LISTED = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, channels=4):
        super().__init__()
        self.inner = nn.Conv2d(channels, channels, 1)

    def forward(self, x, t):
        found = self.inner(x) * t.view(-1, 1, 1, 1)
        return RETURNED
"""


@pytest.mark.parametrize(("returned", "count"), [("found", 1), ("(found, found)", 2), ("([*found], {})", 0)])
def test_tensors_of_a_forward_are_counted_and_none_in_a_list(returned: str, count: int, tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(LISTED.replace("RETURNED", returned))
    assert find({"toy": {"channels": 4}, "reference": f"{tmp_path}/net.py::Net"})["answers"] == count


def test_no_inputs_are_looked_for_in_a_model_that_is_too_large(tmp_path: Path) -> None:
    (tmp_path / "huge.py").write_text(HUGE)
    with pytest.raises(BadInput, match=r"^toy_config.json is too large for a toy: .* million parameters"):
        find({"toy": {}, "reference": f"{tmp_path}/huge.py::Net"})
