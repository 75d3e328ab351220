"""Attention that stands in a block is lifted into a module of its own, whose processor is called."""

from pathlib import Path

import pytest

from omni_kit.parity import run_parity
from omni_kit.pysource.library import find_library
from omni_kit.scaffold import new_model
from omni_kit.targets.diffusers.porting.port import Port, port
from omni_kit.upstream.repositories.reference import find_reference

NET = """\
import torch
import torch.nn.functional as F
from torch import nn


def attend(q, k, v, scale=None):
    return F.scaled_dot_product_attention(q, k, v, scale=scale).transpose(1, 2).flatten(2)


def heads_of(x, heads):
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


class Layers(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.q, self.kv, self.proj = nn.Linear(width, width), nn.Linear(width, 2 * width), nn.Linear(width, width)

    def forward(self, x):
        k, v = self.kv(x).chunk(2, -1)
        return self.proj(attend(heads_of(self.q(x), self.heads), heads_of(k, self.heads), heads_of(v, self.heads)))


class Mlp(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.inner, self.outer = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        return self.outer(F.gelu(self.inner(x)))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.layers = Layers(width, heads)
        self.norm = nn.LayerNorm(width)
        self.mlp = Mlp(width)

    def forward(self, x):
        y = self.norm(x)
        q, (k, v) = self.layers.q(y), self.layers.kv(y).chunk(2, -1)
        q, k, v = (heads_of(one, self.heads) for one in (q, k, v))
        x = x + self.layers.proj(ATTENDED)
        return x + self.mlp(x)


class Net(nn.Module):
    def __init__(self, in_channels=4, width=64, depth=2, n_head=4, text_dim=32):
        super().__init__()
        self.x_in, self.t_in, self.c_in = nn.Linear(in_channels, width), nn.Linear(1, width), nn.Linear(text_dim, width)
        self.blocks = nn.ModuleList([Block(width, n_head) for _ in range(depth)])
        self.out = nn.Linear(width, in_channels)

    def forward(self, x, t, y):
        b, c, h, w = x.shape
        x = self.x_in(x.flatten(2).transpose(1, 2)) + (self.t_in(t[:, None]) + self.c_in(y).mean(1))[:, None]
        for block in self.blocks:
            x = block(x)
        return self.out(x).transpose(1, 2).reshape(b, c, h, w)
"""
BY_FUNCTION = "attend(q, k, v)"
BY_KERNEL = "F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)"


def written(folder: Path, text: str) -> Path:
    file = folder / "net.py"
    file.write_text(text, encoding="utf-8")
    return file


def ported(folder: Path, text: str) -> Port:
    return port(find_reference(f"{written(folder, text)}::Net"), "Tiny", find_library("diffusers"), "diffusers")


@pytest.mark.parametrize("attended", [BY_FUNCTION, BY_KERNEL])
def test_attention_of_a_block_gets_a_module_and_a_processor(attended: str, tmp_path: Path) -> None:
    found = ported(tmp_path, NET.replace("ATTENDED", attended))
    assert found.attention.processors == ["TinyAttnProcessor"]
    assert "class TinyAttention(nn.Module, AttentionModuleMixin):" in found.text
    assert "self.attn = TinyAttention()" in found.text
    assert "self.attn(q, k, v)" in found.text
    assert not [what for _, what in found.todo if "processor" in what]


def test_what_only_holds_layers_gets_no_processor(tmp_path: Path) -> None:
    text = ported(tmp_path, NET.replace("ATTENDED", BY_FUNCTION)).text
    layers = text.partition("class TinyLayers(nn.Module):")[2].partition("\nclass ")[0]
    assert "def __init__" in layers
    assert "def forward" not in layers


MADE = (
    "        self.q, self.kv, self.proj = "
    "nn.Linear(width, width), nn.Linear(width, 2 * width), nn.Linear(width, width)\n"
)
OWN = "        k, v = self.kv(x).chunk(2, -1)\n        return self.proj(attend(heads_of(self.q(x), self.heads), "
FUSED = NET.replace("ATTENDED", BY_FUNCTION).replace(
    MADE, "        self.qkv = nn.Linear(width, width * 3)\n        self.proj = nn.Linear(width, width)\n"
).replace(
    OWN, "        q, k, v = self.qkv(x).chunk(3, -1)\n        return self.proj(attend(heads_of(q, self.heads), "
).replace(
    "q, (k, v) = self.layers.q(y), self.layers.kv(y).chunk(2, -1)", "q, k, v = self.layers.qkv(y).chunk(3, -1)"
)  # fmt: skip


def test_layers_that_a_block_asks_for_have_diffusers_names(tmp_path: Path) -> None:
    found = ported(tmp_path, FUSED)
    assert "self.to_k = nn.Linear(width, width)" in found.text
    assert "q, k, v = self.layers.to_q(y), self.layers.to_k(y), self.layers.to_v(y)" in found.text
    assert "self.layers.to_out[1](self.layers.to_out[0](" in found.text
    assert found.attention.projections["TinyLayers"].fused == "qkv"


def test_layers_whose_weights_a_block_reads_keep_their_names(tmp_path: Path) -> None:
    found = ported(tmp_path, FUSED.replace("self.layers.qkv(y)", "F.linear(y, self.layers.qkv.weight)"))
    assert "self.layers.qkv.weight" in found.text
    assert "self.qkv = nn.Linear(width, width * 3)" in found.text
    assert "to_out" not in found.text


def test_a_module_that_is_called_has_its_own_processor(tmp_path: Path) -> None:
    called = NET.replace("        x = x + self.layers.proj(ATTENDED)\n", "        x = x + self.layers(y)\n")
    found = ported(tmp_path, called)
    assert "class TinyLayers(nn.Module, AttentionModuleMixin):" in found.text
    assert "TinyAttention" not in found.text


def test_a_block_that_computes_attention_in_two_ways_is_left_to_a_person(tmp_path: Path) -> None:
    found = ported(tmp_path, NET.replace("ATTENDED", f"{BY_FUNCTION} + {BY_KERNEL}"))
    assert "TinyAttention" not in found.text
    assert [what for _, what in found.todo if what == "move this attention into a class of its own, with a processor"]


def test_its_processors_are_called_and_a_backend_reaches_them(tmp_path: Path) -> None:
    source = written(tmp_path, FUSED)
    new_model("lifted", f"{source}::Net", target="diffusers", into=tmp_path)
    report = run_parity(tmp_path / "lifted", ("hooks", "keys", "forward"))
    assert report.ok, report.levels


def test_y_is_a_prompt_where_the_model_is_made_with_the_width_of_one(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    net = NET.replace("ATTENDED", BY_FUNCTION)
    names = ported(tmp_path, net).forward.names
    assert names == {"x": "hidden_states", "t": "timestep", "y": "encoder_hidden_states"}
    assert "y" not in ported(tmp_path / "other", net.replace("text_dim", "last")).forward.names


def test_a_pipeline_raises_where_the_authors_loop_was_not_found(tmp_path: Path) -> None:
    source = written(tmp_path, NET.replace("ATTENDED", BY_FUNCTION))
    made = new_model("unread", f"{source}::Net", target="diffusers", into=tmp_path)
    text = (tmp_path / "unread" / "pipeline_unread.py").read_text(encoding="utf-8")
    assert "raise NotImplementedError" in text
    assert "scheduler.step" not in text
    assert len([one for one in made.plan.todo if one.what.startswith("write the denoising steps")]) == 1
    assert "tokenizer: PreTrainedTokenizerBase | None" in text
    assert "        vae: AutoencoderKL,\n" in text
