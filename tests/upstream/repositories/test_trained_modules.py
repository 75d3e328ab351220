"""Models that derive from the module of a training framework."""

import ast
from pathlib import Path

import pytest

from omni_kit.pysource.library import find_library
from omni_kit.targets.diffusers.porting.port import port
from omni_kit.upstream.repositories.reference import find_reference

NET = """
IMPORT


class Net(BASE):
    def __init__(self, width=16, rate=0.1):
        super().__init__()
        self.save_hyperparameters(
            ignore=["rate"]
        )
        self.proj = nn.Linear(width, width)
        if rate > 1:
            self.log("rate", rate)

    def forward(self, x, timestep):
        return self.proj(x) * timestep.view(-1, 1, 1) + self.hparams.width
"""
LIGHTNING = NET.replace("IMPORT", "from torch import nn\nimport pytorch_lightning as pl").replace(
    "BASE", "pl.LightningModule"
)


def written(place: Path, text: str) -> str:
    (place / "m.py").write_text(text, encoding="utf-8")
    return f"{place / 'm.py'}::Net"


@pytest.mark.parametrize("line", [
    "from lightning.pytorch import LightningModule as Module",
    "from pytorch_lightning.core.lightning import LightningModule as Module",
])  # fmt: skip
def test_a_framework_s_module_is_one_of_torch(line: str, tmp_path: Path) -> None:
    text = NET.replace("IMPORT", f"from torch import nn\n{line}").replace("BASE", "Module")
    cls = find_reference(written(tmp_path, text)).cls
    assert ast.unparse(cls.node.bases[0]) == "torch.nn.Module"


def test_another_class_of_that_name_stays(tmp_path: Path) -> None:
    text = NET.replace("IMPORT", "from torch import nn\nclass LightningModule(nn.Module):\n    pass")
    cls = find_reference(written(tmp_path, text.replace("BASE", "LightningModule"))).cls
    assert "save_hyperparameters" in ast.unparse(cls.node)


def test_the_port_reads_what_is_saved_from_its_config(tmp_path: Path) -> None:
    """The lines of the file keep their numbers."""
    reference = find_reference(written(tmp_path, LIGHTNING))
    assert reference.cls.node.end_lineno == LIGHTNING.rstrip().count("\n") + 1
    text = port(reference, "Net", find_library("diffusers"), "diffusers").text
    assert not [word for word in ("ightning", "save_hyperparameters", "self.log", "hparams") if word in text]
    assert "self.config.width" in text
