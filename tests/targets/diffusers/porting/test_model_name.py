"""The name of a model's class by its kind, and by the number of axes that it denoises along."""

from pathlib import Path

import pytest

from omni_kit.targets.diffusers.porting.model_name import model_name, page_of
from omni_kit.upstream.repositories.reference import find_reference

NET = """from torch import nn

class Net(nn.Module):
    def __init__(self, {given}):
        super().__init__()
        {parts}

    def forward(self, x, t):
        return self.{first}(x)
"""
BOTH = "self.down_blocks, self.up_blocks = nn.ModuleList([nn.Conv{n}d(4, 4, 1)]), nn.ModuleList()"


@pytest.mark.parametrize(("given", "parts", "axes", "name"), [
    ("width", "self.proj = nn.Linear(width, width)", 0, "Transformer2D"),
    ("width", "self.proj = nn.Linear(width, width)", 5, "Transformer3D"),
    ("width", "self.proj = nn.Conv1d(width, width, 1)", 3, "Transformer1D"),
    ("width", "self.proj = nn.Conv1d(width, width, 1)", 0, "Transformer2D"),
    ("width", "self.proj = nn.Linear(width, width)", 3, "Transformer2D"),  # tokens of pictures, for all that is known
    ("mel_dim", "self.proj = nn.Linear(mel_dim, mel_dim)", 3, "Transformer1D"),
    ("mel_dim, img_size", "self.proj = nn.Linear(mel_dim, mel_dim)", 3, "Transformer2D"),
    ("audio_dim", "self.proj = nn.Conv3d(4, 4, 1)", 0, "Transformer3D"),
    ("audio_dim", "self.proj, self.line = nn.Conv3d(4, 4, 1), nn.Conv1d(4, 4, 1)", 0, "Transformer3D"),
    ("width", "self.proj, self.flat = nn.Conv3d(4, 4, 1), nn.Conv2d(4, 4, 1)", 0, "Transformer2D"),
    ("width", BOTH.format(n=2), 0, "UNet2D"),
    ("width", BOTH.format(n=1), 3, "UNet1D"),
    ("width", BOTH.format(n=2).replace("up_blocks", "upsample_by"), 4, "UNet2D"),
    ("width", BOTH.format(n=2).replace("self.up_blocks", "rest"), 4, "Transformer2D"),
])  # fmt: skip
def test_a_class_is_named_by_its_kind_and_axes(given: str, parts: str, axes: int, name: str, tmp_path: Path) -> None:
    first = "proj" if "self.proj" in parts else "down_blocks[0]"
    (tmp_path / "m.py").write_text(NET.format(given=given, parts=parts, first=first), encoding="utf-8")
    assert model_name(find_reference(f"{tmp_path}::Net"), "Tiny", axes) == f"Tiny{name}Model"


@pytest.mark.parametrize(("first", "name"), [
    ("b, c, f, h, w = x.shape", "Transformer3D"),
    ("x = rearrange(x, 'b c f h w -> b f c h w')", "Transformer3D"),
    ("x = rearrange(x, '(b f) c h w -> b f c h w', f=2)", "Transformer2D"),
    ("x = self.proj(x)\n        x = rearrange(x, 'b c f h w -> b f c h w')", "Transformer2D"),
])  # fmt: skip
def test_axes_that_no_run_has_shown_are_those_that_forward_names(first: str, name: str, tmp_path: Path) -> None:
    text = NET.format(given="width", parts="self.proj = nn.Linear(width, width)", first="proj")
    text = "from einops import rearrange\n" + text.replace("        return", f"        {first}\n        return")
    (tmp_path / "m.py").write_text(text, encoding="utf-8")
    assert model_name(find_reference(f"{tmp_path}::Net"), "Tiny") == f"Tiny{name}Model"


@pytest.mark.parametrize(("cls", "axes", "name"), [
    ("StyleTransformer1d", 3, "Transformer1D"), ("Unet3D", 0, "UNet3D"), ("Net2DModel", 5, "Transformer3D"),
    ("Net3drums", 0, "Transformer2D"),
])  # fmt: skip
def test_a_number_in_the_authors_name_counts_where_axes_do_not_say_more(
    cls: str, axes: int, name: str, tmp_path: Path
) -> None:
    text = NET.format(given="width", parts="self.proj = nn.Linear(width, width)", first="proj")
    (tmp_path / "m.py").write_text(text.replace("class Net(", f"class {cls}("), encoding="utf-8")
    assert model_name(find_reference(f"{tmp_path}::{cls}"), "Tiny", axes) == f"Tiny{name}Model"


def test_a_page_is_named_after_the_class() -> None:
    assert page_of("tiny", "TinyUNet1DModel", "Tiny") == "tiny_unet1d"
