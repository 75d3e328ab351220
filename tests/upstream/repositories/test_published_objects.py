"""Objects that configs describe: their class, and what that is made with."""

from pathlib import Path

import pytest

from omni_kit.upstream.repositories.published import made_in_configs
from omni_kit.upstream.repositories.reference import find_reference

NET = "from torch import nn\n\n\nclass Net(nn.Module):\n    def forward(self, x, t):\n        return x\n"


@pytest.mark.parametrize(("text", "found"), [
    ("noise:\n  _target_: diffusers.DDPMScheduler\n  beta_start: 0.1\n",
     [("noise", "DDPMScheduler", {"beta_start": 0.1})]),
    ("noise:\n  target: diffusers.DDIMScheduler\n  eta: 0.0\n  params:\n    beta_start: 0.1\n",
     [("noise", "DDIMScheduler", {"beta_start": 0.1})]),
    ("all:\n  - class_path: diffusers.DDIMScheduler\n    init_args:\n      beta_start: 0.1\n",
     [("0", "DDIMScheduler", {"beta_start": 0.1})]),
    ("noise:\n  target: diffusers.DDIMScheduler\n", [("noise", "DDIMScheduler", {})]),
    ("noise:\n  target: own.Sampler\n  params:\n    beta_start: 0.1\n", []),
    ("note: DDIMScheduler\n", []),
])  # fmt: skip
def test_each_way_to_name_a_class_is_known(
    text: str, found: list[tuple[str, str, dict[str, float]]], tmp_path: Path
) -> None:
    (tmp_path / "net.py").write_text(NET, encoding="utf-8")
    (tmp_path / "config.yaml").write_text(text, encoding="utf-8")
    repository = find_reference(f"{tmp_path / 'net.py'}::Net").repository
    made = [(one.key, one.cls.rpartition(".")[2], one.given) for one in made_in_configs(repository, "Scheduler")]
    assert made == found
