"""Classes that inherit from the authors' own become one class."""

import re
from pathlib import Path

import pytest

from tests.targets.diffusers.porting.small_models import ASKED, attention, ported

BASE = """
class Base(nn.Module):
    def __init__(self, dim, bias=True, drop=0.0):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(dim, dim), nn.Linear(dim, dim), nn.Linear(dim, dim))
        self.o = nn.Linear(dim, dim, bias=bias)
        self.drop = nn.Dropout(drop)

    def forward(self, x):
        return x


"""


def test_attention_that_inherits_from_a_base_of_its_own_is_one_class(tmp_path: Path) -> None:
    base = BASE.replace(
        "self.q, self.k, self.v = (nn.Linear(dim, dim), nn.Linear(dim, dim), nn.Linear(dim, dim))",
        "\n        ".join(f"self.{one} = nn.Linear(dim, dim)" for one in "qkv"),
    )
    base = base.replace("super()", "super(Base, self)")
    text = attention("", f"{ASKED}").replace("class Attn(nn.Module):", "class Attn(Base):")
    text = text.replace("super().__init__()\n", "super().__init__(dim, bias=False)\n", 1)
    found = ported(tmp_path, base + text)
    assert "Base" not in found.text
    assert "self.to_out = nn.ModuleList([nn.Linear(dim, dim, bias=bias), nn.Dropout" in found.text
    assert "bias = False" in found.text


INHERITED = """
class Embed(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        return self.proj(x)


class Base(nn.Module):
    scale = 2.0

    def __init__(self, dim=8, depth=2, rate=0.5, **kwargs):
        super().__init__()
        self.embed = Embed(dim)
        self.rates = rate = [rate] * depth
        self.blocks = nn.ModuleList([Embed(dim) for _ in range(depth)])

    def widened(self, x):
        return x * self.scale

    def forward(self, x, t):
        return self.embed(self.widened(x))


class Net(Base):
    def __init__(self, dim=8, depth=2, rate=0.25, odd=True):
        super().__init__(dim=dim, depth=depth, rate=rate, odd=odd)
        self.blocks = nn.ModuleList([nn.Linear(dim, dim) for _ in range(depth)])
        self.factor = rate

    def forward(self, x, t):
        y = super().forward(x, t)
        for block in self.blocks:
            y = block(y)
        return y * self.factor
"""


def test_a_model_that_inherits_from_another_one_is_one_class(tmp_path: Path) -> None:
    """With what both constructors set, once; names that both have for different things are kept apart."""
    found = ported(tmp_path, INHERITED)
    assert "class TinyBase" not in found.text
    init = found.text.partition("class TinyTransformer2DModel")[2]
    assert "base_rate = rate\n" in init
    assert "self.rates = base_rate = [base_rate] * depth" in init
    assert init.count("self.blocks = ") == 1
    assert "self.factor = rate" in init
    assert "self.base_forward(" in init
    assert "scale = 2.0" in init


def test_arguments_that_a_base_is_handed_are_named(tmp_path: Path) -> None:
    text = INHERITED.replace("dim=8, depth=2, rate=0.5, **kwargs", "dim, depth=2, rate=0.5, odd=False")
    text = text.replace("dim=8, depth=2, rate=0.25, odd=True", "factor=0.25, **kwargs")
    text = text.replace("dim=dim, depth=depth, rate=rate, odd=odd", "odd=True, **kwargs")
    text = text.replace("nn.Linear(dim, dim) for _ in range(depth)", "nn.Linear(8, 8) for _ in range(2)")
    found = ported(tmp_path, text.replace("self.factor = rate", "self.factor = factor"))
    init = found.text.partition("class TinyTransformer2DModel")[2].partition("def __init__(")[2].partition(")")[0]
    assert [one.strip().partition("=")[0].strip() for one in init.split(",")][1:] == ["dim", "factor", "depth", "rate"]
    assert "class TinyBase" not in found.text


def test_a_base_whose_arguments_cannot_be_told_stays(tmp_path: Path) -> None:
    found = ported(tmp_path, INHERITED.replace("super().__init__(dim=dim, depth=depth, rate=rate, odd=odd)",
                                               "super().__init__(*[dim, depth])"))  # fmt: skip
    assert "self.embed" not in found.text.partition("class TinyTransformer2DModel")[2]
    assert [what for _, what in found.todo if what.startswith("write what TinyBase has into this class")]


@pytest.mark.parametrize(("read", "joined"), [("", True), ("        self.count = len(args)\n", False)])
def test_positional_arguments_that_a_base_is_only_handed_are_left_out(read: str, joined: bool, tmp_path: Path) -> None:
    heir = f"class Net(Base):\n    def __init__(self, odd=True, *args, **kwargs):\n{read}"
    heir += "        super().__init__(*args, **kwargs)\n        self.odd = odd\n"
    found = ported(tmp_path, INHERITED.replace("rate=0.5, **kwargs", "rate=0.5").partition("class Net")[0] + heir)
    model = found.text.partition("class TinyTransformer2DModel")[2]
    assert ("self.embed = TinyEmbed(dim)" in model) is joined
    assert ("def __init__(self, odd=True, dim=8, depth=2, rate=0.5):" in model) is joined
    assert "kwargs" not in model or not joined


def test_an_argument_that_is_looked_up_past_another_value_stays_looked_up(tmp_path: Path) -> None:
    heir = "class Net(Base):\n    def __init__(self, odd=True, **kwargs):\n        dim = 3\n"
    heir += "        super().__init__(**kwargs)\n        self.odd = dim\n"
    model = ported(tmp_path, INHERITED.replace("rate=0.5, **kwargs", "rate=0.5").partition("class Net")[0] + heir).text
    assert re.search(r'base_dim = kwargs.get\("dim", 8\)', model)
    assert "depth = kwargs" not in model


@pytest.mark.parametrize(("again", "joined"), [("self.last = Norm(dim)", True), ("self.own = Norm(dim)", False)])
def test_a_namesake_of_a_base_that_is_set_again_may_mean_something_else(
    again: str, joined: bool, tmp_path: Path
) -> None:
    (tmp_path / "base.py").write_text(
        "import torch.nn as nn\nfrom torch.nn import LayerNorm as Norm\n\n\nclass Base(nn.Module):\n"
        "    def __init__(self, dim=8):\n        super().__init__()\n"
        "        self.first = nn.Linear(dim, dim)\n        self.last = Norm(dim)\n"
    )
    heir = "from base import Base\n\n\nclass Norm(nn.LayerNorm):\n    pass\n\n\nclass Net(Base):\n"
    heir += f"    def __init__(self, dim=8):\n        super().__init__(dim)\n        {again}\n\n"
    found = ported(tmp_path, heir + "    def forward(self, x, t):\n        return self.first(x)\n")
    assert (" = nn.Linear(dim, dim)" in found.text.partition("class TinyTransformer2DModel")[2]) is joined


def test_a_constructor_that_returns_what_its_base_does_is_joined(tmp_path: Path) -> None:
    heir = (
        "ODD = 3\n\n\nclass Net(Base):\n    def __init__(self, dim=8, rate=ODD):\n"
        "        return super().__init__(dim=dim, rate=rate)\n\n\n"
    )
    found = ported(tmp_path, INHERITED.partition("class Net")[0] + heir)
    model = found.text.partition("class TinyTransformer2DModel")[2]
    assert "rate=ODD" in model
    assert "self.embed = TinyEmbed(dim)" in model
    assert "super().__init__()\n" in model
    assert not [what for _, what in found.todo if "TinyBase" in what]


def test_a_default_that_is_computed_stays_inside(tmp_path: Path) -> None:
    text = INHERITED.replace("odd=True", "odd=ODD").replace("class Net(", "ODD = torch.ones(2)\n\n\nclass Net(")
    assert "odd = ODD\n" in ported(tmp_path, text).text


def test_a_constructor_that_skips_its_base_does_not_do_what_the_base_does(tmp_path: Path) -> None:
    text = """
class Base(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.old = nn.Linear(dim, dim)

    def forward(self, x, t):
        return self.proj(x)

class Net(Base):
    def __init__(self, dim=8):
        super(Base, self).__init__()
        self.proj = nn.Linear(dim, 2 * dim)
"""
    found = ported(tmp_path, text)
    assert "self.old" not in found.text
    assert "super().__init__()" in found.text
