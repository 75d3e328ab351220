"""Attention of the authors as a class with a processor."""

from pathlib import Path

import pytest

from tests.targets.diffusers.porting.small_models import ASKED, HEAD, NET, SPLIT, attention, ported


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
    assert "AttentionMixin, PeftAdapterMixin" in found.text


def test_a_model_without_attention_sets_no_processors(tmp_path: Path) -> None:
    assert "AttentionMixin" not in ported(tmp_path, NET.replace("Attn(dim)", "nn.Linear(dim, dim)")).text


def test_a_variable_called_as_the_module_is_in_a_processor_is_renamed(tmp_path: Path) -> None:
    written = "attn = (self.q(x) @ self.k(x).mT).softmax(-1)\nif self.training:\n    return self.o(attn @ self.v(x))\n"
    found = ported(tmp_path, attention(SPLIT, written + ASKED))
    assert "attn_weights = (attn.q(x) @ attn.k(x).mT).softmax(-1)" in found.text
    assert "attn_weights @ attn.v(x)" in found.text


@pytest.mark.parametrize(("last", "place"), [("if dim > 4:\n    return", 0), ("self.scale = dim", -1)])
def test_a_constructor_that_may_return_early_has_its_processor_before(last: str, place: int, tmp_path: Path) -> None:
    found = ported(tmp_path, attention(f"{SPLIT}\n{last}", ASKED))
    init = found.text.partition("class TinyAttn(")[2].partition("super().__init__()")[2].partition("def forward")[0]
    lines = [one.strip() for one in init.splitlines() if one.strip()]
    assert lines[place] == "self.set_processor(TinyAttnProcessor())"


def test_a_function_that_computes_attention_is_told_the_backend(tmp_path: Path) -> None:
    helper = "def attend(q, k, v):\n    return F.scaled_dot_product_attention(q, k, v)\n\n\n"
    found = ported(tmp_path, helper + attention(SPLIT, ASKED.replace("F.scaled_dot_product_attention", "attend")))
    assert "def attend(q, k, v, backend=None, parallel_config=None):" in found.text
    assert found.text.count("parallel_config=self._parallel_config") == 1


@pytest.mark.parametrize(("body", "asked"), [
    ("x * t", False), ("x.softmax(-1) * t", True), ("Attention(8)(x.softmax(-1)) * t", False),
])  # fmt: skip
def test_only_what_attends_is_to_have_a_processor(body: str, asked: bool, tmp_path: Path) -> None:
    text = f"\nclass Net(nn.Module):\n    def forward(self, x, t):\n        return {body}\n"
    text = text.replace(
        "    def forward", "    def __init__(self, dim=8):\n        super().__init__()\n\n    def forward"
    )
    library = "from diffusers.models.attention_processor import Attention\n" if "Attention" in body else ""
    found = ported(tmp_path, text, HEAD + library)
    assert any("no attention was found" in what for _, what in found.todo) is asked


def test_what_a_backend_answers_is_reshaped(tmp_path: Path) -> None:
    asked = ASKED.replace("return self.o(y[:, 0])", "return self.o(y.view(1, -1, 8).view(torch.float32))")
    found = ported(tmp_path, attention(SPLIT, asked))
    assert "y.reshape(1, -1, 8).view(torch.float32)" in found.text
