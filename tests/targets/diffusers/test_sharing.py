"""Which plan shares out tokens: found where there is one, refused where there is none, and never by halves."""

import ast
import importlib
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from omni_kit.cli.app import app
from omni_kit.errors import Refusal
from omni_kit.isolation.requests import run_worker
from omni_kit.scaffold import new_model
from omni_kit.targets.diffusers.runtime.sharing import derive

LUMEN = Path(__file__).parents[3] / "reference_models" / "diffusers" / "lumen"
NET = """\
import math

import torch
import torch.nn as nn
import torch.nn.functional as F


def turned(x, cos, sin):
    a, b = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-b, a], dim=-1) * sin


class SelfAttention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v = nn.Linear(dim, dim), nn.Linear(dim, dim), nn.Linear(dim, dim)
        self.o = nn.Linear(dim, dim)

    def forward(self, x, cos, sin):
        b, n, c = x.shape
        q, k, v = (f(x).view(b, n, self.heads, c // self.heads).transpose(1, 2) for f in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(turned(q, cos, sin), turned(k, cos, sin), v)
        return self.o(y.transpose(1, 2).reshape(b, n, c))


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attn = SelfAttention(dim, heads)
        self.ff = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))
        self.ada = nn.Linear(dim, 2 * dim)

    def forward(self, x, temb, cos, sin):
        a, b = self.ada(temb)[:, None].chunk(2, dim=-1)
        x = x + a * self.attn(self.norm1(x), cos, sin)
        return x + b * self.ff(self.norm2(x))


class Ibis(nn.Module):
    def __init__(self, in_channels=4, dim=64, depth=2, heads=4, text_dim=32):
        super().__init__()
        self.x_in = nn.Linear(in_channels, dim)
        self.t_in = nn.Linear(1, dim)
        self.c_in = nn.Linear(text_dim, dim)
        self.head_dim = dim // heads
        self.blocks = nn.ModuleList([Block(dim, heads) for _ in range(depth)])
        self.norm = nn.LayerNorm(dim)
        self.out = nn.Linear(dim, in_channels)

    def forward(self, x, t, context):
        b, c, h, w = x.shape
        freq = 100.0 ** (-torch.arange(0, self.head_dim, 2, device=x.device) / self.head_dim)
        angles = torch.arange(h * w, device=x.device)[:, None] * torch.cat([freq, freq])
        x = self.x_in(x.flatten(2).transpose(1, 2))
        temb = self.t_in(t[:, None]) + self.c_in(context).mean(1)
        cos, sin = angles.cos(), angles.sin()
        for block in self.blocks:
            x = block(x, temb, cos, sin)
        x = self.out(self.norm(x))
        return x.transpose(1, 2).reshape(b, c, h, w)
"""


def made(folder: Path, text: str, name: str = "ibis_net") -> Path:
    (folder / "ibis.py").write_text(text, encoding="utf-8")
    new_model(name, f"{folder / 'ibis.py'}::Ibis", target="diffusers", into=folder)
    return folder / name


def test_a_plan_names_tokens_positions_and_what_answers(tmp_path: Path) -> None:
    given = str(made(tmp_path, NET, "planned_net"))
    module = "omni_checkers.diffusers.runs.sharing"
    text, _ = run_worker(f"{module}:found", given, timeout=300, modules=("torch", module), confined=False)
    along = "ContextParallelInput(split_dim=0, expected_dims=2)"
    wanted = f"""_cp_plan = {{
        "transformer_blocks.0": {{"x": ContextParallelInput(split_dim=1, expected_dims=3)}},
        "transformer_blocks.*": {{"cos": {along}, "sin": {along}}},
        "proj_out": ContextParallelOutput(gather_dim=1, expected_dims=3),
    }}"""
    assert ast.dump(ast.parse(text)) == ast.dump(ast.parse(wanted))


@pytest.mark.sweep
def test_a_plan_that_names_tokens_positions_and_what_answers_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = made(tmp_path, NET, "shared_net")
    command = ["check", str(path), "--level", "toy", "--select", "DFU704"]
    assert "fixed 1 finding" in CliRunner().invoke(app, [*command, "--fix"]).output
    monkeypatch.syspath_prepend(str(tmp_path))
    from diffusers.models._modeling_parallel import ContextParallelInput, ContextParallelOutput

    plan = importlib.import_module("shared_net.transformer_shared_net").SharedNetTransformer2DModel._cp_plan
    along = ContextParallelInput(split_dim=0, expected_dims=2)
    assert plan == {
        "transformer_blocks.0": {"x": ContextParallelInput(split_dim=1, expected_dims=3)},
        "transformer_blocks.*": {"cos": along, "sin": along},
        "proj_out": ContextParallelOutput(gather_dim=1, expected_dims=3),
    }
    for name in [name for name in sys.modules if name.partition(".")[0] == path.name]:
        del sys.modules[name]


@pytest.mark.sweep
def test_blocks_that_count_their_tokens_have_none(tmp_path: Path) -> None:
    """Shapes fit, and every process takes its tokens for the first ones."""
    own = "a, b = self.ada(temb)[:, None].chunk(2, dim=-1)\n"
    counted = NET.replace(own, f"{own}        x = x + torch.arange(x.shape[1])[None, :, None] * a\n")
    with pytest.raises(Refusal, match="it changes the model's output"):
        derive(made(tmp_path, counted))


@pytest.mark.sweep
def test_text_that_is_cut_off_behind_the_blocks_stands_against_it() -> None:
    with pytest.raises(Refusal, match="no module after the blocks returns all of their tokens"):
        derive(LUMEN)
