"""Forms of attention that authors' repositories have: ported, converted by the written function, and at parity."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from omni_kit.parity import run_parity
from omni_kit.parity.processes.workers import Sides
from omni_kit.scaffold import new_model
from tests.conftest import sampled

NET = """\
import torch
import torch.nn.functional as F
from einops import rearrange
from torch import nn


class Attention(nn.Module):
    def __init__(self, dim, heads, groups):
        super().__init__()
        self.heads, self.kv_heads = heads, heads // groups
        self.head_dim = dim // heads
{init}
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        b, n, c = x.shape
{forward}
        return self.proj(y.transpose(1, 2).reshape(b, n, c))


class Block(nn.Module):
    def __init__(self, width, heads, groups=2):
        super().__init__()
        self.norm, self.attn = nn.LayerNorm(width), Attention(width, heads=heads, groups=groups)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x):
        x = x + self.attn(self.norm(x))
        return x + self.mlp(x)


class Net(nn.Module):
    def __init__(self, in_channels=4, width=64, depth=2, n_head=4, text_dim=32):
        super().__init__()
        self.x_in, self.t_in, self.c_in = nn.Linear(in_channels, width), nn.Linear(1, width), nn.Linear(text_dim, width)
        self.blocks = nn.ModuleList([Block(width, n_head) for _ in range(depth)])
        self.out = nn.Linear(width, in_channels)

    def forward(self, x, t, context):
        b, c, h, w = x.shape
        x = self.x_in(x.flatten(2).transpose(1, 2)) + (self.t_in(t[:, None]) + self.c_in(context).mean(1))[:, None]
        for block in self.blocks:
            x = block(x)
        return self.out(x).transpose(1, 2).reshape(b, c, h, w)
"""
FUSED = "self.qkv = nn.Linear(dim, 3 * dim)"
APART = """self.wq = nn.Linear(dim, dim)
self.wk = nn.Linear(dim, self.kv_heads * self.head_dim)
self.wv = nn.Linear(dim, self.kv_heads * self.head_dim)"""
SPLIT = "\n".join(f"{one} = self.w{one}(x).view(b, n, -1, self.head_dim).transpose(1, 2)" for one in ("q", "k", "v"))
PLAIN = "y = F.scaled_dot_product_attention(q, k, v)"
# Name -> what the constructor makes, what forward does, and how rows are grouped in the function that converts.
FORMS = {
    "h_three_d": (FUSED, "q, k, v = self.qkv(x).reshape(b, n, self.heads, 3, -1).transpose(1, 2).unbind(3)\n" + PLAIN,
                  '(config["n_head"], -1)'),
    "h_d_three": (FUSED, 'q, k, v = rearrange(self.qkv(x), "b n (h d s) -> s b h n d", s=3, h=self.heads)\n' + PLAIN,
                  "(-1, 1)"),
    "h_by_size": (FUSED, "qkv = self.qkv(x)\nq, k, v = qkv.view(b, n, -1, 3, self.head_dim).transpose(1, 2).unbind(3)\n"
                  + PLAIN, '(-1, (config["width"] // config["n_head"]))'),
    "h_chunked": (FUSED, "qkv = self.qkv(x).view(b, n, self.heads, 3 * self.head_dim).transpose(1, 2)\n"
                  "q, k, v = qkv.chunk(3, dim=-1)\n" + PLAIN, '(config["n_head"], -1)'),
    "grouped": (APART, SPLIT + "\ny = F.scaled_dot_product_attention(q, k, v, enable_gqa=True)", ""),
    "repeated": (APART, SPLIT + "\nk = k.repeat_interleave(self.heads // self.kv_heads, dim=1)\n"
                 "v = v.repeat_interleave(self.heads // self.kv_heads, dim=1)\n" + PLAIN, ""),
}  # fmt: skip


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sides]:
    with Sides(tmp_path_factory.mktemp("sides")) as both:
        yield both


@pytest.mark.parametrize("form", sampled(FORMS, "repeated"))
def test_a_form_is_ported_and_at_parity(form: str, tmp_path: Path, sides: Sides) -> None:
    init, forward, groups = FORMS[form]
    file = tmp_path / f"{form}.py"
    indent = "\n        "
    text = NET.replace("{init}", "        " + indent.join(init.split("\n")))
    file.write_text(text.replace("{forward}", "        " + indent.join(forward.split("\n"))), encoding="utf-8")
    made = new_model(f"net_{form}", f"{file}::Net", target="diffusers", into=tmp_path)
    package = tmp_path / f"net_{form}"
    model = (package / f"transformer_net_{form}.py").read_text(encoding="utf-8")
    assert not [todo for todo in made.plan.todo if "attention" in todo.what or "to_q" in todo.what], made.plan.todo
    assert "self.to_q = nn.Linear(dim, dim)" in model
    assert "self.qkv" not in model
    if groups:
        assert groups in (package / "conversion.py").read_text(encoding="utf-8")
    else:
        assert "enable_gqa=True" in model
        assert "repeat_interleave" not in model
    report = run_parity(package, ("keys", "roundtrip", "forward", "backward", "modules", "steps"), sides=sides)
    assert report.ok, report.levels
