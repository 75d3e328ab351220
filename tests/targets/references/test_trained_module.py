"""The module of a training framework that is not installed."""

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from omni_kit.targets.references.authors import Authors
from omni_kit.targets.references.trained_module import TrainedModule
from omni_kit.upstream.repositories.reference import find_reference


class Net(TrainedModule):
    """Saves the arguments that a test names."""

    def __init__(self, how: Any, width: int = 4, *, rate: float = 0.1, **more: int) -> None:
        super().__init__()
        self.proj = nn.Linear(width, width)
        self.save_hyperparameters(*how[0], **how[1])


@pytest.mark.parametrize(("given", "ignored", "kept"), [
    ((), ("how",), {"width": 8, "rate": 0.1, "depth": 2}),
    (("width", "depth"), (), {"width": 8, "depth": 2}),
    (({"betas": 3},), (), {"betas": 3}),
    ((), ("how", "rate"), {"width": 8, "depth": 2}),
])  # fmt: skip
def test_arguments_are_kept_as_the_framework_does(given: Any, ignored: Any, kept: dict[str, Any]) -> None:
    net = Net((given, {"ignore": ignored}), 8, depth=2)
    assert dict(net.hparams) == kept
    assert all(getattr(net.hparams, name) == value for name, value in kept.items())


def test_it_knows_its_device_and_logs_nothing() -> None:
    net = Net(((), {"ignore": "how"}))
    net.log("loss", 1.0)
    assert (net.device, net.global_step) == (torch.device("cpu"), 0)


@pytest.mark.skipif("pytorch_lightning" in sys.modules, reason="it is installed")
@pytest.mark.parametrize(("base", "runs"), [("pytorch_lightning.LightningModule", True), ("lit_nowhere.Module", False)])
def test_a_class_of_theirs_derives_from_it(base: str, runs: bool, tmp_path: Path) -> None:
    text = f"""
import torch, {base.partition(".")[0]}


class Net({base}):
    def __init__(self, dim=4):
        super().__init__()
        self.save_hyperparameters()
        self.inner = torch.nn.Linear(dim, dim)

    def forward(self, x, t):
        return self.inner(x) * self.hparams.dim
"""
    (tmp_path / "net.py").write_text(text, encoding="utf-8")
    other = "import torch\n\n\nclass Other(torch.nn.Module):\n    def forward(self, x, t):\n        return x\n"
    (tmp_path / "other.py").write_text(other, encoding="utf-8")
    authors = Authors(find_reference(f"{tmp_path / 'other.py'}::Other"))
    with authors.importing_files():
        made = authors.get("net", "Net")
    if not runs:
        with pytest.raises(Exception, match="lit_nowhere"):
            made()
        return
    assert made()(torch.ones(1, 4), 0).shape == (1, 4)
    assert "pytorch_lightning" in authors.used
