"""Layers that make queries, keys and values, apart where authors fused them."""

from pathlib import Path

import pytest

from tests.conftest import first
from tests.targets.diffusers.porting.small_models import ASKED, SPLIT, attention, ported


@pytest.mark.parametrize(("forward", "split"), first(3, [
    ("q, k, v = self.qkv(x).chunk(3, dim=-1)", True),
    ("b, n, d = x.shape\nq, k, v = self.qkv(x).reshape(b, n, 3, 2, d // 2).unbind(2)", True),
    ("b, n, d = x.shape\nq, k, v = self.qkv(x).reshape(b, n, 2, 3, d // 2).unbind(3)", True),
    ("b, n, d = x.shape\nq, k, v = self.qkv(x).reshape(b, n, h_of(d), 3, -1).unbind(3)", False),
    ("q, k, v = self.qkv(x).unflatten(-1, (3, -1)).unbind(-2)", True),
    ("shape = [x.shape[0], -1, 3, 2, x.shape[-1] // 2]\nq, k, v = self.qkv(x).view(shape).unbind(2)", True),
    ("q, k, v = self.qkv(x).view(my_own(x)).unbind(2)", False),
    ("q, k, v = my_own(self.qkv(x))", False),
]))  # fmt: skip
def test_a_fused_layer_is_split_where_the_order_of_rows_is_told(forward: str, split: bool, tmp_path: Path) -> None:
    init = "self.qkv = nn.Linear(dim, 3 * dim)\nself.o = nn.Linear(dim, dim)"
    asked = f"{forward}\ny = F.scaled_dot_product_attention(q, k, v)\nreturn self.o(y)"
    found = ported(tmp_path, "def my_own(x):\n    return x.chunk(3, -1)\n\n\n" + attention(init, asked))
    assert ("self.to_q = nn.Linear(dim, dim)" in found.text) is split
    assert any("to_q" in what for _, what in found.todo) is not split


@pytest.mark.parametrize(("early", "renamed"), [("", True), ("    if x is None:\n        return v, k, q\n", False)])
def test_queries_and_keys_of_a_function_within_come_from_layers(early: str, renamed: bool, tmp_path: Path) -> None:
    made = (
        f"def made(x):\n    q, k, v = self.q(x), self.k(x), self.v(x)\n{early}    return q, k, v\n\nq, k, v = made(x)\n"
    )
    found = ported(tmp_path, attention(SPLIT, made + ASKED.partition("\n")[2]))
    assert ("self.to_q = nn.Linear(dim, dim)" in found.text) is renamed


def test_keys_and_values_of_one_layer_are_split(tmp_path: Path) -> None:
    init = "\n".join(
        ("self.q = nn.Linear(dim, dim)", "self.kv = nn.Linear(dim, dim * 2)", "self.o = nn.Linear(dim, dim)")
    )
    asked = (
        "b, n, d = x.shape\nq = self.q(x)\nk, v = self.kv(x).view(b, n, 2, d).unbind(2)\n"
        "return self.o(F.scaled_dot_product_attention(q, k, v))"
    )
    found = ported(tmp_path, attention(init, asked))
    assert "self.to_v = nn.Linear(dim, dim)" in found.text
    assert (r"transformer_blocks.\1.to_k.\2", r"transformer_blocks.\1.to_v.\2") in [row.names for row in found.rows]
