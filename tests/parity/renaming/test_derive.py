"""The renaming table: found by running both sides, whatever the names, halves, chunks and rows."""

import shutil
from pathlib import Path

import pytest

from omni_kit.errors import BadInput
from omni_kit.parity.renaming.derive import Derived, derive

LUMEN = Path(__file__).parents[3] / "reference_models" / "diffusers" / "lumen"


@pytest.fixture(scope="module")
def plain() -> Derived:
    """What the example itself is made of."""
    return derive(LUMEN)


def changed(folder: Path, *changes: tuple[str, str]) -> Path:
    """The example with its model written otherwise; its conversion knows nothing of it."""
    shutil.copytree(LUMEN, folder / "lumen")
    toy, file = folder / "lumen" / "toy_config.json", folder / "lumen" / "transformer_lumen.py"
    source = LUMEN.parent / "_upstream" / "lumen"
    toy.write_text(toy.read_text().replace("reference_models/diffusers/_upstream/lumen", str(source)))
    text = file.read_text(encoding="utf-8")
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    file.write_text(text, encoding="utf-8")
    return folder / "lumen"


OTHERWISE = (
    ("norm1", "norm0"), ("norm2", "norm1"), ("norm0", "norm2"),
    ("gate, up = self", "up, gate = self"),
    ("shift_a, scale_a, gate_a, shift_m, scale_m, gate_m = self",
     "scale_a, shift_a, gate_a, scale_m, shift_m, gate_m = self"),
    ("even, odd = tail[..., 0::2], tail[..., 1::2]", "even, odd = tail.chunk(2, dim=-1)"),
    ("torch.stack([even * cos - odd * sin, even * sin + odd * cos], dim=-1).flatten(-2)",
     "torch.cat([even * cos - odd * sin, even * sin + odd * cos], dim=-1)"),
    ("self.x_in = nn.Linear(in_channels * patch_size**2, dim)",
     "self.patches = nn.Conv2d(in_channels, dim, patch_size, patch_size)"),
    ("self.x_in(self.patchify(hidden_states))", "self.patches(hidden_states).flatten(2).transpose(1, 2)"),
    ("self.w_in", "self.proj_in"),
)  # fmt: skip


@pytest.mark.sweep
def test_everything_at_once_is_told_apart(tmp_path: Path) -> None:
    """Swapped norms, gate and value, chunks, rotary rows, a convolution over patches, a split layer, other names."""
    rows = derive(changed(tmp_path, *OTHERWISE)).rows
    found = {row.partition(" <- ")[0]: row.partition(" <- ")[2] for row in rows}
    assert found["transformer_blocks.{}.norm1.scale"] == "blocks.{}.norm2.scale"
    assert found["transformer_blocks.{}.norm2.scale"] == "blocks.{}.norm1.scale"
    assert found["transformer_blocks.{}.ff.proj_in.weight"].endswith("[torch.cat([one.chunk(2)[at] for at in (1, 0)])]")
    assert "(1, 0, 2, 4, 3, 5)" in found["transformer_blocks.{}.ada.{}.weight"]
    assert ".unflatten(0, (-1, 10, 2)).transpose(1, 2)" in found["transformer_blocks.{}.attn.to_q.weight"]
    assert found["transformer_blocks.{}.attn.to_v.weight"] == "blocks.{}.attn.qkv.weight [one.chunk(3)[2]]"
    assert found["patches.weight"].startswith("x_in.weight [")


def test_a_plain_port_needs_one_run(plain: Derived) -> None:
    assert plain.notes == ("found in 1 run",)
    row = "transformer_blocks.{}.attn.to_q.weight <- blocks.{}.attn.qkv.weight [one.chunk(3)[0]]"
    assert row in plain.rows


def test_the_function_that_is_written_converts(plain: Derived) -> None:
    import torch

    scope: dict[str, object] = {}
    exec(plain.text, scope)
    convert = scope["convert_lumen_checkpoint"]
    whole = torch.arange(24.0).reshape(12, 2)
    made = convert({"blocks.3.attn.qkv.weight": whole})  # type: ignore[operator]
    assert torch.equal(made["transformer_blocks.3.attn.to_k.weight"], whole[4:8])


@pytest.mark.sweep
def test_code_that_is_wrong_whatever_the_weights_is_said(tmp_path: Path) -> None:
    path = changed(tmp_path, ("F.silu(gate) * up", "F.relu(gate) * up"))
    with pytest.raises(BadInput, match=r"transformer_blocks\.0\.ff\.w_out"):
        derive(path, seconds=5)
