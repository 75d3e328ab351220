"""Modules are named by the part that each plays."""

from pathlib import Path

import pytest

from tests.conftest import first
from tests.targets.diffusers.porting.small_models import ASKED, NAMED, SPLIT, attention, ported


def test_modules_are_named_by_the_part_that_they_play(tmp_path: Path) -> None:
    found = ported(tmp_path, NAMED)
    rows = {row.pattern: row.names for row in found.rows}
    assert rows[r"stack\.(\d+)\.mix\.qn\.(.+)"] == (r"transformer_blocks.\1.attn1.norm_q.\2",)
    assert rows[r"stack\.(\d+)\.read\.(.+)"] == (r"transformer_blocks.\1.attn2.\2",)
    assert rows[r"stack\.(\d+)\.last\.(.+)"] == (r"transformer_blocks.\1.norm3.\2",)
    assert rows[r"stack\.(\d+)\.net\.(.+)"] == (r"transformer_blocks.\1.ff.\2",)
    own = ("patch_embed", "time_embed", "context_embedder", "norm_out", "proj_out")
    assert {names[0].partition(".")[0] for names in rows.values()} == {"transformer_blocks", *own}


CLOCK = "self.clock = nn.Sequential(nn.Linear(dim, dim), nn.SiLU(), nn.Linear(dim, dim))"


@pytest.mark.parametrize(("made", "used", "name"), first(6, [
    (CLOCK, "self.clock(t)", "time_embed"),
    (CLOCK, "self.clock(self.clock(t))", "time_embed"),
    (CLOCK, "self.clock(t) + self.clock(x)", "clock"),
    ("self.clock = activation(dim)", "self.clock(t)", "clock"),
    ("self.clock = nn.SiLU()", "self.clock(t)", "clock"),
    (f"{CLOCK}; self.t_embedder = nn.Linear(dim, dim)", "self.clock(t // 2) + self.t_embedder(self.clock(t))", "clock"),
]))  # fmt: skip
def test_a_module_without_parameters_or_of_other_values_is_no_time_embedding(
    made: str, used: str, name: str, tmp_path: Path
) -> None:
    text = NAMED.replace(CLOCK, made).replace("self.clock(t)", used)
    chosen = "def activation(dim):\n    if dim > 4:\n        return nn.ELU()\n    return nn.SiLU()\n\n\n"
    assert f"self.{name} = " in ported(tmp_path, text.replace("class Norm(", f"{chosen}class Norm(", 1)).text


@pytest.mark.parametrize("more", first(1, [
    "        self.register_buffer('transformer_blocks', torch.ones(1))\n", "        self.transformer_blocks = 3\n",
    "        setattr(self, 'transformer_blocks', 3)\n",
    "        getattr(self, 'stack')\n", "        self.made = [Layer]\n",
]))  # fmt: skip
def test_names_that_are_taken_or_written_as_texts_stay(more: str, tmp_path: Path) -> None:
    found = ported(tmp_path, NAMED.replace("        self.inner =", f"{more}        self.inner ="))
    assert "self.stack" in found.text or "self.between" in found.text


@pytest.mark.parametrize(("width", "name"), [("dim // 2", "q_norm"), ("dim", "norm1")])
def test_norms_of_heads_are_no_norms_of_a_block(width: str, name: str, tmp_path: Path) -> None:
    wrapper = f"""
class Wrapper(nn.Module):
    def __init__(self, dim):
        super().__init__()
        head_dim = {width}
        self.q_norm = nn.LayerNorm({"head_dim" if name == "q_norm" else "dim"})
        self.inner = Attn(dim)

    def forward(self, x):
        return self.inner(self.q_norm(x))
"""
    text = attention(SPLIT, ASKED).replace("class Net(", f"{wrapper.strip()}\n\n\nclass Net(").replace(
        "[Attn(dim)", "[Wrapper(dim)"
    )  # fmt: skip
    assert f"self.{name} = nn.LayerNorm(" in ported(tmp_path, text).text


ONE = "self.into = nn.Linear(dim, dim)"
TWO = "self.into, self.more = nn.Sequential(nn.Linear(dim, dim), nn.SiLU()), nn.Linear(dim, dim)"


@pytest.mark.parametrize(("base", "layers", "called", "name"), [
    ("nn.Module", ONE, "self.into(x)", "patch_embed"),
    ("nn.Module", TWO, "self.more(self.into(x))", "inner"),
    ("nn.Sequential", ONE, "self.into(x)", "inner"),
])  # fmt: skip
def test_a_block_at_the_beginning_is_no_embedding_of_patches(
    base: str, layers: str, called: str, name: str, tmp_path: Path
) -> None:
    start = f"""
class Start({base}):
    def __init__(self, dim):
        super().__init__()
        {layers}

    def forward(self, x):
        return {called}
"""
    text = NAMED.replace("self.inner = nn.Linear(dim, dim)", "self.inner = Start(dim)")
    text = text.replace("class Norm(", f"{start.strip()}\n\n\nclass Norm(", 1)
    assert f"self.{name} = " in ported(tmp_path, text).text
