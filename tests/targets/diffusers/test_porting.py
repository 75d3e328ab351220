"""The rewriting of authors' code: what it becomes, in the words of the file."""

from pathlib import Path

import pytest

from omni_kit.pysource.library import find_library
from omni_kit.targets.diffusers.porting.port import Port, port
from omni_kit.upstream.repositories.reference import find_reference

HEAD = "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n"
NET = """
class Net(nn.Module):
    def __init__(self, dim=8, depth=2):
        super().__init__()
        self.blocks = nn.ModuleList([Attn(dim) for _ in range(depth)])

    def forward(self, x, t, context):
        for block in self.blocks:
            x = block(x)
        return x
"""


def ported(folder: Path, text: str, head: str = HEAD, name: str = "Net") -> Port:
    (folder / "m.py").write_text(head + text, encoding="utf-8")
    return port(find_reference(f"{folder}::{name}"), "Tiny", find_library("diffusers"), "diffusers")


def attention(init: str, forward: str) -> str:
    lines = "\n".join(f"        {line}" for line in init.splitlines())
    body = "\n".join(f"        {line}" for line in forward.splitlines())
    start = "class Attn(nn.Module):\n    def __init__(self, dim):\n        super().__init__()\n"
    return f"{start}{lines}\n\n    def forward(self, x):\n{body}\n\n{NET}"


SPLIT = "\n".join(f"self.{name} = nn.Linear(dim, dim)" for name in "qkvo")
ASKED = """q, k, v = self.q(x), self.k(x), self.v(x)
y = F.scaled_dot_product_attention(q[:, None], k[:, None], v[:, None])
return self.o(y[:, 0])"""


def test_attention_gets_a_processor_and_the_usual_names(tmp_path: Path) -> None:
    found = ported(tmp_path, attention(SPLIT, ASKED))
    assert "class TinyAttnProcessor:" in found.text
    assert "class TinyAttn(nn.Module, AttentionModuleMixin):" in found.text
    assert "backend=self._attention_backend" in found.text
    assert "scaled_dot_product_attention" not in found.text
    assert "attn.to_out[1](attn.to_out[0](" in found.text
    assert [row.names for row in found.rows] == [
        (r"transformer_blocks.\1.to_q.\2",), (r"transformer_blocks.\1.to_k.\2",),
        (r"transformer_blocks.\1.to_v.\2",), (r"transformer_blocks.\1.to_out.0.\2",),
        (r"transformer_blocks.\1",),
    ]  # fmt: skip
    assert not found.todo


@pytest.mark.parametrize(("forward", "split"), [
    ("q, k, v = self.qkv(x).chunk(3, dim=-1)", True),
    ("b, n, d = x.shape\nq, k, v = self.qkv(x).reshape(b, n, 3, 2, d // 2).unbind(2)", True),
    ("b, n, d = x.shape\nq, k, v = self.qkv(x).reshape(b, n, 2, 3, d // 2).unbind(3)", True),
    ("b, n, d = x.shape\nq, k, v = self.qkv(x).reshape(b, n, h_of(d), 3, -1).unbind(3)", False),
    ("q, k, v = self.qkv(x).unflatten(-1, (3, -1)).unbind(-2)", True),
    ("q, k, v = my_own(self.qkv(x))", False),
])  # fmt: skip
def test_a_fused_layer_is_split_where_the_order_of_rows_is_told(forward: str, split: bool, tmp_path: Path) -> None:
    init = "self.qkv = nn.Linear(dim, 3 * dim)\nself.o = nn.Linear(dim, dim)"
    asked = f"{forward}\ny = F.scaled_dot_product_attention(q, k, v)\nreturn self.o(y)"
    found = ported(tmp_path, "def my_own(x):\n    return x.chunk(3, -1)\n\n\n" + attention(init, asked))
    assert ("self.to_q = nn.Linear(dim, dim)" in found.text) is split
    assert any("to_q" in what for _, what in found.todo) is not split


def test_layers_that_others_ask_for_keep_their_names(tmp_path: Path) -> None:
    outside = NET.replace(
        "x = block(x)", "x = block(x)\n            x = x + block.o.weight.sum() * self.blocks[0].q.bias"
    )
    found = ported(tmp_path, attention(SPLIT, ASKED).replace(NET, outside))
    assert "self.q = nn.Linear" in found.text
    assert any("by name" in what for _, what in found.todo)


def test_a_function_that_computes_attention_is_told_the_backend(tmp_path: Path) -> None:
    helper = "def attend(q, k, v):\n    return F.scaled_dot_product_attention(q, k, v)\n\n\n"
    found = ported(tmp_path, helper + attention(SPLIT, ASKED.replace("F.scaled_dot_product_attention", "attend")))
    assert "def attend(q, k, v, backend=None, parallel_config=None):" in found.text
    assert found.text.count("parallel_config=self._parallel_config") == 1


def test_blocks_are_checkpointed_and_named(tmp_path: Path) -> None:
    found = ported(tmp_path, attention(SPLIT, ASKED))
    assert "self._gradient_checkpointing_func(block, hidden_states)" in found.text
    assert '_no_split_modules = ["TinyAttn"]' in found.text
    assert "def forward(self, hidden_states, timestep, encoder_hidden_states, return_dict: bool = True):" in found.text


def test_named_arguments_reach_a_checkpoint(tmp_path: Path) -> None:
    text = attention(SPLIT, ASKED).replace("x = block(x)", "x = block(**{'x': x})")
    assert "functools.partial(block, **{" in ported(tmp_path, text).text


@pytest.mark.parametrize(("call", "written"), [
    ('rearrange(x, "b l (h d) -> b h l d", h=2)', "x.unflatten(2, (2, -1)).transpose(1, 2)"),
    ('rearrange(x, "b c (h p) -> b h (p c)", p=2)', "x.unflatten(2, (-1, 2)).permute(0, 2, 3, 1).flatten(2, 3)"),
    ('repeat(x, "b l d -> b n l d", n=3)', "x.unsqueeze(1).expand(-1, 3, -1, -1)"),
    ('rearrange(x, "b l d -> (b l) d")', "x.flatten(0, 1)"),
])  # fmt: skip
def test_einops_is_written_out(call: str, written: str, tmp_path: Path) -> None:
    import torch
    from einops import rearrange, repeat

    text = attention(SPLIT, f"x = {call}\n{ASKED}")
    found = ported(tmp_path, text, HEAD + "from einops import rearrange, repeat\n")
    assert written in found.text
    assert "einops" not in found.text
    x = torch.arange(48.0).reshape(2, 6, 4)
    assert torch.equal(eval(call, {"rearrange": rearrange, "repeat": repeat, "x": x}), eval(written, {"x": x}))


def test_what_cannot_be_written_out_is_said(tmp_path: Path) -> None:
    text = attention(SPLIT, f'x = rearrange(x, "b ... d -> b (...) d")\n{ASKED}')
    found = ported(tmp_path, text, HEAD + "from einops import rearrange\n")
    marked = found.text.splitlines()
    assert {what.split(" (")[0] for _, what in found.todo} >= {"write rearrange out with torch's own methods"}
    assert all("TODO(omni-kit)" in marked[line - 1] for line, _ in found.todo)


def test_flags_of_packages_that_may_not_be_there_come_along(tmp_path: Path) -> None:
    guard = "try:\n    import flash_attn\n    FLASH = True\nexcept ImportError:\n    FLASH = False\n\n\n"
    helper = (
        "def attend(q, k, v):\n    if FLASH:\n        return flash_attn.go(q, k, v)\n"
        "    return F.scaled_dot_product_attention(q, k, v)\n\n\n"
    )
    text = helper + attention(SPLIT, ASKED.replace("F.scaled_dot_product_attention", "attend"))
    found = ported(tmp_path, text, HEAD + guard)
    assert "except ImportError:\n    FLASH = False" in found.text


def test_a_models_own_words_are_not_taken(tmp_path: Path) -> None:
    text = attention(SPLIT, ASKED).replace("self.blocks = nn", "self.dtype = torch.float32\n        self.blocks = nn")
    assert "self.dtype_ = torch.float32" in ported(tmp_path, text).text


HEADS = "q, k, v = (f(x).unflatten(-1, (2, -1)).transpose(1, 2) for f in (self.q, self.k, self.v))\n"


@pytest.mark.parametrize(("written", "scale"), [
    ("a = (q @ k.transpose(-2, -1)) * 0.5\na = a.softmax(dim=-1)\ny = a @ v", "scale=0.5"),
    ("a = F.softmax(q @ k.mT / d, dim=-1)\ny = torch.matmul(a, v)", "scale=1.0 / d"),
    ("a = torch.matmul(q, k.transpose(2, 3))\na = a * self.s\na = torch.softmax(a, -1)\ny = a @ v", "scale=attn.s"),
    ("a = q @ k.mT\na = (a * 0.5).softmax(-1)\na = self.drop(a)\ny = a @ v",
     "dropout_p=attn.drop.p if attn.training else 0.0"),
    ("a = q @ k.mT * 0.5\nm = x.mean()\na += m\na = a.softmax(-1, dtype=torch.float32)\ny = a @ v", "attn_mask=m"),
    ("a = torch.einsum('b h i d, b h j d -> b h i j', q, k) * 0.5\na = a.softmax(-1)\n"
     "y = torch.einsum('b h i j, b h j d -> b i h d', a, v)", "scale=0.5"),
    ("a = q.mul(d) @ k.swapaxes(-1, -2)\na = a.softmax(-1)\ny = (a @ v)", "scale=1.0"),
])  # fmt: skip
def test_attention_that_is_written_out_becomes_a_call(written: str, scale: str, tmp_path: Path) -> None:
    own = f"d = 2\n{HEADS}{written}\nreturn self.o(y.transpose(1, 2).flatten(2))"
    found = ported(tmp_path, attention(f"{SPLIT}\nself.s = 0.5\nself.drop = nn.Dropout(0.1)", own))
    assert scale in found.text
    assert "softmax" not in found.text
    assert "class TinyAttnProcessor:" in found.text
    assert not any("dispatch_attention_fn" in what for _, what in found.todo)


@pytest.mark.parametrize("written", [
    "a = (q @ k.mT).softmax(-1)\na = self.other(a)\ny = a @ v",
    "a = (q @ k.mT).masked_fill(m, -1e9).softmax(-1)\ny = a @ v",
    "a = (q @ k.mT).softmax(-2)\ny = a @ v",
    "a = (q @ k.mT).softmax(-1)\ny = a @ v\nself.seen = a",
    "q, k, v = (one.flatten(0, 1) for one in (q, k, v))\na = (q @ k.mT).softmax(-1)\ny = a @ v",
])  # fmt: skip
def test_more_than_plain_attention_is_left_to_a_person(written: str, tmp_path: Path) -> None:
    own = f"m = x.isnan()\n{HEADS}{written}\nreturn self.o(y)"
    found = ported(tmp_path, attention(f"{SPLIT}\nself.drop = nn.Dropout(0.1)", own))
    assert any("attention is written out" in what for _, what in found.todo)


def test_another_form_of_attention_is_left_to_a_person(tmp_path: Path) -> None:
    own = "q, k, v = self.q(x), self.k(x), self.v(x)\nreturn self.o((q @ k.mT).softmax(-1) @ v)"
    found = ported(tmp_path, attention(SPLIT, own))
    assert any("dispatch_attention_fn" in what for _, what in found.todo)


@pytest.mark.parametrize(("repeated", "shared"), [
    ("k, v = k.repeat_interleave(2, dim=1), v.repeat_interleave(2, 1)", False),
    ("k = k.repeat_interleave(2, dim=1)\nv = torch.repeat_interleave(v, 2, dim=-3)", True),
    ("k = k.repeat_interleave(2, dim=1)\nv = v.repeat_interleave(4, dim=1)", False),
    ("k = k.repeat_interleave(2, dim=1)\nv = v.repeat_interleave(2, dim=2)", False),
    ("k = k.repeat_interleave(2, dim=1)\nv = v.repeat_interleave(2, dim=1)\nself.seen = k", False),
    ("k = k.repeat(1, 2, 1, 1)\nv = v.repeat(1, 2, 1, 1)", False),
])  # fmt: skip
def test_keys_and_values_are_shared_where_each_is_repeated_alike(repeated: str, shared: bool, tmp_path: Path) -> None:
    heads = "\n".join(f"{one} = self.{one}(x).unflatten(-1, (-1, 4)).transpose(1, 2)" for one in "qkv")
    own = f"{heads}\n{repeated}\ny = F.scaled_dot_product_attention(q, k, v)\nreturn self.o(y.transpose(1, 2))"
    found = ported(tmp_path, attention(SPLIT, own))
    assert ("enable_gqa=True" in found.text) is shared
    assert ("repeat" not in found.text.replace("_repeated_blocks", "")) is shared


FLASH = "try:\n    import flash_attn\n    MODE = 'flash'\nexcept ImportError:\n    MODE = 'own'\n\n\n"
KERNELS = """if {test}:
    y = flash_attn.flash_attn_func(q, k, v)
elif self.mode == 'own':
    y = (q @ k.mT).softmax(-1) @ v
else:
    y = F.scaled_dot_product_attention(q, k, v, scale=0.25)
return self.o(y.transpose(1, 2).flatten(2))"""


@pytest.mark.parametrize(("test", "mode", "kept"), [
    ("MODE == 'flash'", "'own'", "scale=1.0"),
    ("MODE == 'flash'", "'other'", "scale=0.25"),
    ("unknown()", "'own'", "scale=0.25"),
])  # fmt: skip
def test_of_kernels_that_may_not_be_there_the_one_that_runs_is_kept(
    test: str, mode: str, kept: str, tmp_path: Path
) -> None:
    own = f"{HEADS}{KERNELS.format(test=test)}"
    head = f"{HEAD}{FLASH}def unknown():\n    return torch.cuda.is_available()\n\n\n"
    found = ported(tmp_path, attention(f"{SPLIT}\nself.mode = {mode}", own), head)
    assert "flash_attn" not in found.text
    assert kept in found.text


@pytest.mark.parametrize("test", ["x.shape[1] > 3", "self.mode is None"])
def test_branches_that_depend_on_the_input_or_call_one_kernel_are_kept(test: str, tmp_path: Path) -> None:
    again = "F.scaled_dot_product_attention(q, k, v)"
    other = "flash_attn.flash_attn_func(q, k, v)" if "x" in test else f"{again} * 2"
    own = f"{HEADS}if {test}:\n    y = {other}\nelse:\n    y = {again}\nreturn self.o(y)"
    found = ported(tmp_path, attention(f"{SPLIT}\nself.mode = None", own), f"{HEAD}import flash_attn\n")
    assert "if " in found.text.partition("__call__")[2].partition("class ")[0]


NAMED = """
class Norm(nn.LayerNorm):
    pass


class Mixer(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.q, self.k, self.v = nn.Linear(dim, dim), nn.Linear(dim, dim), nn.Linear(dim, dim)
        self.qn = nn.LayerNorm(dim)
        self.kn = nn.LayerNorm(dim)
        self.o = nn.Linear(dim, dim)

    def forward(self, x, y):
        q, k, v = self.qn(self.q(x)), self.kn(self.k(y)), self.v(y)
        return self.o(F.scaled_dot_product_attention(q, k, v))


class Layer(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.before = nn.LayerNorm(dim)
        self.mix = Mixer(dim)
        self.between = nn.LayerNorm(dim)
        self.read = Mixer(dim)
        self.last = nn.LayerNorm(dim)
        self.net = nn.Sequential(nn.Linear(dim, dim), nn.GELU(), nn.Linear(dim, dim))

    def forward(self, x, y):
        h = self.before(x)
        x = x + self.mix(h, h)
        x = x + self.read(self.between(x), y)
        return x + self.net(self.last(x))


class Net(nn.Module):
    def __init__(self, dim=8, depth=2):
        super().__init__()
        self.inner = nn.Linear(dim, dim)
        self.clock = nn.Sequential(nn.Linear(dim, dim), nn.SiLU(), nn.Linear(dim, dim))
        self.words = nn.Linear(dim, dim)
        self.stack = nn.ModuleList([Layer(dim) for _ in range(depth)])
        self.ending = nn.LayerNorm(dim)
        self.out = nn.Linear(dim, dim)

    def forward(self, x, t, context):
        y = self.words(context)
        x = self.inner(x) + self.clock(t)
        for block in self.stack:
            x = block(x, y)
        return self.out(self.ending(x))
"""


def test_modules_are_named_by_the_part_that_they_play(tmp_path: Path) -> None:
    found = ported(tmp_path, NAMED)
    rows = {row.pattern: row.names for row in found.rows}
    assert rows[r"stack\.(\d+)\.mix\.qn\.(.+)"] == (r"transformer_blocks.\1.attn1.norm_q.\2",)
    assert rows[r"stack\.(\d+)\.read\.(.+)"] == (r"transformer_blocks.\1.attn2.\2",)
    assert rows[r"stack\.(\d+)\.last\.(.+)"] == (r"transformer_blocks.\1.norm3.\2",)
    assert rows[r"stack\.(\d+)\.net\.(.+)"] == (r"transformer_blocks.\1.ff.\2",)
    own = ("patch_embed", "time_embed", "context_embedder", "norm_out", "proj_out")
    assert {names[0].partition(".")[0] for names in rows.values()} == {"transformer_blocks", *own}


@pytest.mark.parametrize("more", [
    "        self.transformer_blocks = 3\n", "        getattr(self, 'stack')\n", "        self.made = [Layer]\n",
])  # fmt: skip
def test_names_that_are_taken_or_written_as_texts_stay(more: str, tmp_path: Path) -> None:
    found = ported(tmp_path, NAMED.replace("        self.inner =", f"{more}        self.inner ="))
    assert "self.stack" in found.text or "self.between" in found.text
