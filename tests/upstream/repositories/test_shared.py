"""Constructors that read their settings from a mapping of a module, which a program fills."""

from pathlib import Path

import pytest

from omni_kit.pysource.library import find_library
from omni_kit.targets.diffusers.porting.port import port
from omni_kit.upstream.repositories.reference import Reference, find_reference
from omni_kit.upstream.repositories.shared import Shared

MODEL = """from torch import nn

from settings_of_lamps import hparams


class Lamp(nn.Module):
    def __init__(self, mels=8):
        super().__init__()
        self.width = hparams["width"]
        self.proj = nn.Linear(mels, self.width, bias=hparams.get("bias", True))

    def forward(self, x, t):
        return self.proj(x) * {scale}
"""


def lamp(folder: Path, scale: str = "2", settings: str = "hparams = {}\n") -> Reference:
    (folder / "README.md").write_text("")
    (folder / "settings_of_lamps.py").write_text(settings)
    (folder / "lamp_of_settings.py").write_text(MODEL.format(scale=scale))
    return find_reference(f"{folder}/lamp_of_settings.py::Lamp")


def test_what_a_program_fills_in_is_an_argument(tmp_path: Path) -> None:
    found = lamp(tmp_path)
    assert found.shared == Shared("settings_of_lamps", "hparams")
    assert [*found.arguments] == ["width", "bias", "mels"]
    text = port(found, "Small", find_library("diffusers"), "diffusers").text
    assert "def __init__(self, width, bias=True, mels=8):" in text
    assert "hparams" not in text


@pytest.mark.parametrize(("scale", "settings"), [
    ('hparams["scale"]', "hparams = {}\n"),  # when it runs
    ("2", 'hparams = {"width": 4}\n'),  # a constant
])  # fmt: skip
def test_other_mappings_stay_as_they_are(scale: str, settings: str, tmp_path: Path) -> None:
    found = lamp(tmp_path, scale, settings)
    assert found.shared is None
    assert [*found.arguments] == ["mels"]
