"""Attention that authors wrote out: the call that replaces it computes the same."""

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from omni_kit.targets.diffusers.porting.explicit_attention import as_calls
from omni_kit.upstream.repositories.closure import Closure, closure_of
from omni_kit.upstream.repositories.names import Defined, resolve
from omni_kit.upstream.repositories.reference import find_reference
from tests.conftest import first
from tests.targets.diffusers.porting.small_models import HEADS, SPLIT, attention, ported

FILE = """import math
import torch
import torch as th
import torch.nn.functional as F
from torch import einsum, nn

class Net(nn.Module):
    def forward(self, q, k, v, mask=None):
        return attend(q, k, v, mask)

def exists(one):
    return one is not None

def attend(q, k, v, mask=None):
    {}
"""
CALL = "scaled_dot_product_attention"
WIDTH_LAST, WIDTH_FIRST, WITH_HEADS = (3, 5, 4), (3, 4, 5), (3, 2, 4, 5)


PRECISE = """if v is not None:
    with torch.autocast(enabled=False, device_type="cuda"):
        q, k = q.float(), k.float()
        sim = einsum('b i d, b j d -> b i j', q, k) * 0.5
else:
{}
del q, k
if exists(mask):
    mask = mask[:, None]
    far = -torch.finfo(sim.dtype).max
    sim.masked_fill_(~mask, far)
sim = sim.softmax(dim=-1)
return einsum('b i j, b j d -> b i d', sim, v)"""


def closure_in(tmp_path: Path, text: str) -> Closure:
    file = tmp_path / "net.py"
    file.write_text(FILE.format(text.replace("\n", "\n    ")), encoding="utf-8")
    found = resolve(find_reference(f"{file}::Net").cls.source, "attend")
    assert isinstance(found, Defined)
    return closure_of(found)


def function_of(closure: Closure) -> tuple[str, Callable[..., Any]]:
    text = "\n".join(ast.unparse(one.node) for one in closure.definitions)
    names: dict[str, Any] = {}
    exec(
        f"import math, torch\nimport torch as th\nimport torch.nn.functional as F\nfrom torch import einsum\n{text}",
        names,
    )
    return text, names["attend"]


@pytest.mark.parametrize(("shape", "text"), [
    (WIDTH_FIRST, 's = 1 / math.sqrt(2)\nw = torch.einsum("bct,bcs->bts", q * s, k * s)\n'
     'w = th.softmax(w.float(), dim=-1).type(w.dtype)\nreturn torch.einsum("bts,bcs->bct", w, v)'),
    (WIDTH_LAST, "sim = einsum('b i d, b j d -> b i j', q, k) * 0.5\nw = sim.softmax(dim=-1)\n"
     "return einsum('b i j, b j d -> b i d', w, v)"),
    (WIDTH_LAST, "sim = einsum('b i d, b j d -> b i j', q, k) * 0.5\nif exists(mask):\n    mask = mask[:, None]\n"
     "    far = -torch.finfo(sim.dtype).max\n    sim.masked_fill_(~mask, far)\nw = sim.softmax(dim=-1)\n"
     "return einsum('b i j, b j d -> b i d', w, v)"),
    (WIDTH_LAST, PRECISE.format("    sim = einsum('b i d, b j d -> b i j', q, k) * 0.5")),
    (WIDTH_LAST, "if math.pi < 3:\n    out = q\nelse:\n    w = einsum('b i d, b j d -> b i j', q, k) * 0.5\n"
     "    w = w.softmax(-1)\n    out = einsum('b i j, b j d -> b i d', w, v)\nreturn out"),
    (WIDTH_LAST, "with torch.autocast('cuda', enabled=False):\n    q = q.float()\n"
     "    sim = einsum('b i d, b j d -> b i j', q, k) * 0.5\nsim = sim.softmax(dim=-1)\n"
     "return einsum('b i j, b j d -> b i d', sim, v)"),
    (WIDTH_LAST, "sim = einsum('b i d, b j d -> b i j', q, k)\nif mask is not None:\n"
     "    mask = mask[:, None]\n    sim = sim.masked_fill(~mask, -1e9)\nw = sim.softmax(dim=-1)\n"
     "return einsum('b i j, b j d -> b i d', w, v)"),
    (WIDTH_FIRST, "q = q.permute(0, 2, 1)\nw = torch.bmm(q, k)\nw = w * 0.5\nw = F.softmax(w, dim=2)\n"
     "v = v.reshape(3, 4, 5)\nw = w.permute(0, 2, 1)\nreturn torch.bmm(v, w)"),
    (WIDTH_LAST, "w = torch.bmm(q, k.transpose(1, 2)) * 0.5\nw = F.softmax(w, dim=-1)\nv = v + 1\n"
     "return torch.bmm(w, v)"),
    (WITH_HEADS, "sim = einsum('b h d i, b h d j -> b h i j', q * 0.5, k)\nw = sim.softmax(dim=-1)\n"
     "return einsum('b h i j, b h d j -> b h i d', w, v)"),
    (WITH_HEADS, "w = einsum('b i h d, b j h d -> b h i j', q, k).softmax(-1)\n"
     "return einsum('b h i j, b j h d -> b i h d', w, v)"),
])  # fmt: skip
@pytest.mark.parametrize("masked", [False, True])
def test_the_call_computes_what_the_authors_do(shape: tuple[int, ...], text: str, masked: bool, tmp_path: Path) -> None:
    closure = closure_in(tmp_path, text)
    found, changed = function_of(as_calls(closure))
    assert CALL in found
    q, k, v = (torch.randn(shape) for _ in range(3))
    mask = torch.tensor([[True, True, False, True, True]] * 3) if masked else None
    expected = function_of(closure)[1](q.clone(), k.clone(), v.clone(), mask)
    assert torch.allclose(changed(q.clone(), k.clone(), v.clone(), mask), expected, atol=1e-6)


@pytest.mark.parametrize("text", [
    "w = torch.einsum('bct,bcs->bts', q, k).softmax(1)\nreturn torch.einsum('bts,bcs->bct', w, v)",
    "w = torch.einsum('bct,bcs->bts', q, k).softmax(-1)\nreturn torch.einsum('bts,bct->bcs', w, v)",
    "w = torch.bmm(q, k).softmax(-1)\nreturn torch.bmm(v, w)",
    "w = torch.bmm(q, k)\nw = w.permute(0, 2, 1)\nw = w.softmax(-1)\nreturn torch.bmm(w, v)",
    "s = einsum('b i d, b j d -> b i j', q, k)\nw = s.softmax(-1)\nreturn einsum('b i j, b j d -> b i d', w, v) + s",
    "if True:\n    w = einsum('b i d, b j d -> b i j', q, k).softmax(-1)\n"
    "    out = einsum('b i j, b j d -> b i d', w, v)\nreturn out, w",
    "s = einsum('b i d, b j d -> b i j', q, k)\nif mask is not None:\n    s.masked_fill_(mask, -1e9)\n"
    "w = s.softmax(-1)\nreturn einsum('b i j, b j d -> b i d', w, v)",
    PRECISE.format("    sim = einsum('b i d, b j d -> b i j', q, k) * 0.7"),
])  # fmt: skip
def test_other_forms_stay(text: str, tmp_path: Path) -> None:
    assert CALL not in function_of(as_calls(closure_in(tmp_path, text)))[0]


@pytest.mark.parametrize("text", [
    "q, k, v = (t.view(3, 5, 2, 4).transpose(1, 2) for t in (q, k, v))\nreturn F.scaled_dot_product_attention(q, k, v)",
    "x = q.reshape(b * n, 5, 8)\nq, k, v = (t.view(3, 5, 2, 4).transpose(1, 2) for t in (x, k, v))\n"
    "return F.scaled_dot_product_attention(q, k, v)",
])  # fmt: skip
def test_calls_for_heads_in_front_of_tokens_stay(text: str, tmp_path: Path) -> None:
    assert "unsqueeze" not in function_of(as_calls(closure_in(tmp_path, text)))[0]


@pytest.mark.parametrize("together", [
    "t.unflatten(2, (2, 4)).movedim(2, 1).flatten(0, 1)",
    "t.reshape(3, 5, 2, 4).permute(0, 2, 1, 3).reshape(b * 2, 5, 4)",
])  # fmt: skip
@pytest.mark.parametrize("masked", [False, True])
def test_calls_for_heads_among_samples_get_an_axis_for_them(together: str, masked: bool, tmp_path: Path) -> None:
    text = (f"b = len(q)\nq, k, v = ({together} for t in (q, k, v))\n"
            "return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=0.3)")  # fmt: skip
    closure = closure_in(tmp_path, text)
    found, changed = function_of(as_calls(closure))
    assert found.count("unsqueeze(1)") == 3
    q, k, v = (torch.randn(3, 5, 8) for _ in range(3))
    mask = torch.randn(5, 5) if masked else None
    assert torch.allclose(changed(q, k, v, mask), function_of(closure)[1](q, k, v, mask), atol=1e-6)


@pytest.mark.parametrize(("written", "scale"), first(3, [
    ("a = (q @ k.transpose(-2, -1)) * 0.5\na = a.softmax(dim=-1)\ny = a @ v", "scale=0.5"),
    ("a = F.softmax(q @ k.mT / d, dim=-1)\ny = torch.matmul(a, v)", "scale=1.0 / d"),
    ("a = torch.matmul(q, k.transpose(2, 3))\na = a * self.s\na = torch.softmax(a, -1)\ny = a @ v", "scale=attn.s"),
    ("a = q @ k.mT\na = (a * 0.5).softmax(-1)\na = self.drop(a)\ny = a @ v",
     "dropout_p=attn.drop.p if attn.training else 0.0"),
    ("a = q @ k.mT * 0.5\nm = x.mean()\na += m\na = a.softmax(-1, dtype=torch.float32)\ny = a @ v", "attn_mask=m"),
    ("a = torch.einsum('b h i d, b h j d -> b h i j', q, k) * 0.5\na = a.softmax(-1)\n"
     "y = torch.einsum('b h i j, b h j d -> b i h d', a, v)", "scale=0.5"),
    ("a = q.mul(d) @ k.swapaxes(-1, -2)\na = a.softmax(-1)\ny = (a @ v)", "scale=1.0"),
]))  # fmt: skip
def test_attention_that_is_written_out_becomes_a_call(written: str, scale: str, tmp_path: Path) -> None:
    own = f"d = 2\n{HEADS}{written}\nreturn self.o(y.transpose(1, 2).flatten(2))"
    found = ported(tmp_path, attention(f"{SPLIT}\nself.s = 0.5\nself.drop = nn.Dropout(0.1)", own))
    assert scale in found.text
    assert "softmax" not in found.text
    assert "class TinyAttnProcessor:" in found.text
    assert not any("dispatch_attention_fn" in what for _, what in found.todo)


@pytest.mark.parametrize("written", first(2, [
    "a = (q @ k.mT).softmax(-1)\na = self.other(a)\ny = a @ v",
    "a = (q @ k.mT).masked_fill(m, -1e9).softmax(-1)\ny = a @ v",
    "a = (q @ k.mT).softmax(-2)\ny = a @ v",
    "a = (q @ k.mT).softmax(-1)\ny = a @ v\nself.seen = a",
    "q, k, v = (one.flatten(0, 1) for one in (q, k, v))\na = (q @ k.mT).softmax(-1)\ny = a @ v",
]))  # fmt: skip
def test_more_than_plain_attention_is_left_to_a_person(written: str, tmp_path: Path) -> None:
    own = f"m = x.isnan()\n{HEADS}{written}\nreturn self.o(y)"
    found = ported(tmp_path, attention(f"{SPLIT}\nself.drop = nn.Dropout(0.1)", own))
    assert any("attention is written out" in what for _, what in found.todo)


def test_another_form_of_attention_is_left_to_a_person(tmp_path: Path) -> None:
    own = "q, k, v = self.q(x), self.k(x), self.v(x)\nreturn self.o((q @ k.mT).softmax(-1) @ v)"
    found = ported(tmp_path, attention(SPLIT, own))
    assert any("dispatch_attention_fn" in what for _, what in found.todo)
