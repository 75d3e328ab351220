"""Layers of attention get diffusers' names where nothing needs their own."""

from pathlib import Path

import pytest

from tests.targets.diffusers.porting.small_models import ASKED, NET, SPLIT, attention, ported


def test_layers_that_others_ask_for_keep_their_names(tmp_path: Path) -> None:
    outside = NET.replace(
        "x = block(x)", "x = block(x)\n            x = x + block.o.weight.sum() * self.blocks[0].q.bias"
    )
    found = ported(tmp_path, attention(SPLIT, ASKED).replace(NET, outside))
    assert "self.q = nn.Linear" in found.text
    assert any("by name" in what for _, what in found.todo)


def test_layers_that_are_inherited_are_renamed_with_those_of_the_base(tmp_path: Path) -> None:
    """One class inherits the constructor, too; one adds a layer to it, and calls attention twice."""
    asked = "".join(f"        {line}\n" for line in ASKED.splitlines())
    heirs = f"class Plain(Attn):\n    def forward(self, x):\n        x = x + 1\n{asked}\n\n"
    heirs += "class More(Attn):\n    def __init__(self, dim):\n        super().__init__(dim)\n"
    heirs += "        self.k_more = nn.Linear(dim, dim)\n\n"
    heirs += "    def forward(self, x):\n        q, k = self.q(x), self.k_more(x)\n"
    heirs += "        x = x + F.scaled_dot_product_attention(q[:, None], k[:, None], k[:, None])[:, 0]\n"
    heirs += f"{asked}\n\n"
    text = attention(SPLIT, ASKED).replace(
        NET, heirs + NET.replace("[Attn(dim)", "[nn.Sequential(Plain(dim), More(dim))")
    )
    found = ported(tmp_path, text)
    assert not [what for _, what in found.todo if "to_q" in what]
    plain, more = (found.text.partition(f"class Tiny{name}Processor")[2] for name in ("Plain", "More"))
    for part in (plain.partition("\nclass ")[0], more.partition("\nclass ")[0]):
        assert "attn.to_q(x)" in part
        assert "attn.to_out[1](attn.to_out[0](" in part
    assert "attn.k_more(x)" in more


@pytest.mark.parametrize(("layer", "renamed"), [("q", False), ("kept", True)])
def test_layers_keep_names_that_a_class_in_their_place_keeps(layer: str, renamed: bool, tmp_path: Path) -> None:
    """Both classes stand at the same paths, and one table converts both."""
    other = "class Other(nn.Module):\n    def __init__(self, dim):\n        super().__init__()\n"
    other += f"        self.{layer} = nn.Linear(dim, dim)\n\n"
    other += f"    def forward(self, x):\n        return self.{layer}(x)\n\n\n"
    net = NET.replace("Attn(dim) for", "(Attn(dim) if depth > 1 else Other(dim)) for")
    text = attention(SPLIT, ASKED).replace(NET, other + net)
    found = ported(tmp_path, text)
    assert ("self.to_q = nn.Linear(dim, dim)" in found.text) is renamed
    assert any("in its place" in what for _, what in found.todo) is not renamed
