"""Rows of the conversion are for the places at which a class stands in the model."""

import re
from pathlib import Path

import pytest

from tests.targets.diffusers.porting.small_models import ASKED, GUARDED_PACKAGE, HEAD, NET, SPLIT, attention, ported


@pytest.mark.parametrize(("held", "made"), [
    ("kind = Attn", "kind"), ("self.kind = Attn if depth > 1 else Attn", "self.kind"), ("kind = nn.Identity", "Attn"),
])  # fmt: skip
def test_rows_are_for_the_places_of_a_class_that_a_variable_holds(held: str, made: str, tmp_path: Path) -> None:
    """A class without attention keeps its layer of the same name."""
    other = "class Other(nn.Module):\n    def __init__(self, dim):\n        super().__init__()\n"
    other += "        self.q = nn.Linear(dim, dim)\n\n    def forward(self, x):\n        return self.q(x)\n\n\n"
    net = NET.replace("super().__init__()", f"super().__init__()\n        self.first = Other(dim)\n        {held}")
    net = net.replace("[Attn(dim)", f"[{made}(dim)")
    found = ported(tmp_path, attention(SPLIT, ASKED).replace(NET, other + net))
    patterns = [row.pattern for row in found.rows if row.names != (r"\1",)]
    assert patterns
    assert not [one for one in patterns if re.fullmatch(one, "first.q.weight")]
    assert [one for one in patterns if re.fullmatch(one, "blocks.0.q.weight")]


STACK = """
def copies(module, count):
    return nn.ModuleList([copy.deepcopy(module) for _ in range(count)])


class Stack(nn.Module):
    def __init__(self, layer, depth, more):
        super().__init__()
        self.dim = layer.dim
        self.layers = copies(layer, depth)
        self.more = nn.Sequential(*more)

    def forward(self, x):
        for one in self.layers:
            x = one(x)
        return self.more(x)


class Residual(nn.Module):
    def __init__(self, kind, dim):
        super().__init__()
        self.fn = kind(dim)

    def forward(self, x):
        return x + self.fn(x)


"""


def test_rows_are_for_the_places_to_which_a_module_is_passed(tmp_path: Path) -> None:
    net = NET.replace(
        "nn.ModuleList([Attn(dim) for _ in range(depth)])", "Stack(layer, depth, more=[Residual(Attn, dim)])"
    )
    net = net.replace("super().__init__()", "super().__init__()\n        layer = Attn(dim)")
    net = net.replace("for block in self.blocks:\n            x = block(x)", "x = self.blocks(x)")
    found = ported(
        tmp_path, "import copy\n\n\n" + attention(f"self.dim = dim\n{SPLIT}", ASKED).replace(NET, STACK + net)
    )
    places = [f"blocks{place}.q.weight" for place in (".layers.1", ".more.0.fn", "", ".dim", ".more.0")]
    matched = [place for place in places if any(re.fullmatch(one.pattern, place) for one in found.rows)]
    assert matched == places[:2]


def test_a_class_that_others_only_inherit_from_has_no_rows_of_its_own(tmp_path: Path) -> None:
    heir = "class Heir(Attn):\n    def __init__(self, dim):\n        super(Heir, self).__init__(dim)\n\n\n"
    net = NET.replace("[Attn(dim)", "[Heir(dim)").replace(
        "super().__init__()", "super().__init__()\n        self.q = 2"
    )
    found = ported(tmp_path, attention(SPLIT, ASKED).replace(NET, heir + net))
    assert found.rows
    assert all(row.pattern.startswith("blocks") for row in found.rows)


def test_modules_in_a_local_list_are_renamed_where_they_stand_alone(tmp_path: Path) -> None:
    """A layer of the model itself may have the name of one within attention."""
    text = attention(SPLIT.replace("self.o ", "self.proj "), ASKED.replace("self.o(", "self.proj(")).partition(NET)[0]
    found = ported(tmp_path, GUARDED_PACKAGE, HEAD + text)
    assert any(row.pattern.startswith(r"blocks\.(\d+)\.proj") for row in found.rows)
    assert not any(row.pattern.startswith("(.+)") for row in found.rows)


def test_modules_in_a_local_list_of_a_dataclass_are_renamed(tmp_path: Path) -> None:
    made = "@dataclass(eq=False)\nclass Net(nn.Module):\n    dim: int = 8\n\n    def __post_init__(self):"
    made += "\n        dim = self.dim"
    net = GUARDED_PACKAGE.replace("class Net(nn.Module):\n    def __init__(self, dim=8):", made)
    head = f"from dataclasses import dataclass\n{HEAD}{attention(SPLIT, ASKED).partition(NET)[0]}"
    found = ported(tmp_path, net, head)
    assert any(row.pattern.startswith(r"blocks\.(\d+)\.o") for row in found.rows)


TABLE = """

def small(**kwargs):
    return Net(depth=2, **kwargs)


NETS = {{"small": {small}}}


class Wrapped(nn.Module):
    def __init__(self, kind="small", dim=8):
        super().__init__()
        self.model = NETS[kind](dim=dim)

    def forward(self, x, t, context):
        return self.model(x, t, context)
"""


@pytest.mark.parametrize(("small", "known"), [("small", True), ("Net", True), ("compute()", False)])
def test_a_table_of_functions_that_make_a_class_says_where_it_stands(tmp_path: Path, small: str, known: bool) -> None:
    head = HEAD + "def compute():\n    return None\n\n\n"
    found = ported(tmp_path, attention(SPLIT, ASKED) + TABLE.format(small=small), head, name="Wrapped")
    patterns = [row.pattern for row in found.rows]
    assert any(one.startswith(r"model\.blocks\.(\d+)") for one in patterns) is known


UNET = """
class Attends(nn.Module):
    def forward(self, q, k, v):
        w = torch.bmm(q, k.transpose(1, 2))
        w = torch.softmax(w, -1)
        assert list(w.shape)
        return torch.bmm(w, v)


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.attention = Attends()
        self.qkv = nn.Linear(dim, 3 * dim)

    def forward(self, x):
        return x + self.attention(*self.qkv(self.norm(x)).chunk(3, -1))


class Other(nn.Module):
    def __init__(self, dim):
        super().__init__()
        {other}

    def forward(self, x):
        return x


class Staged(nn.Sequential):
    def forward(self, x):
        for layer in self:
            x = layer(x)
        return x


class Net(nn.Module):
    def __init__(self, dim=8, depth=2):
        super().__init__()
        self.stages = nn.ModuleList([Staged(nn.Linear(dim, dim))])
        for _ in range(depth):
            layers = [Other(dim)]
            layers.append(Block(dim))
            self.stages.append(Staged(*layers))
        self.middle = Staged(Other(dim), Block(dim))

    def forward(self, x, t):
        for stage in self.stages:
            x = stage(x)
        return self.middle(x)
"""


@pytest.mark.parametrize(
    ("other", "moved"), [("self.kept = nn.Identity()", True), ("self.norm = nn.Identity()", False)]
)
def test_modules_of_a_sequential_of_the_authors_are_renamed_where_none_has_another_name(
    other: str, moved: bool, tmp_path: Path
) -> None:
    rows = {row.pattern: row.names for row in ported(tmp_path, UNET.format(other=other)).rows}
    assert rows[r"stages\.(\d+)\.(\d+)\.attention\.(.+)"] == (r"stages.\1.\2.attn.\3",)
    assert rows[r"middle\.(\d+)\.attention\.(.+)"] == (r"middle.\1.attn.\2",)
    assert (r"stages\.(\d+)\.(\d+)\.norm\.(.+)" in rows) is moved
    assert (r"middle\.(\d+)\.norm\.(.+)" in rows) is moved


@pytest.mark.parametrize("named", ["several = nn.ModuleList\n\n\n", "from torch.nn import ModuleList as several\n\n\n"])
def test_a_list_by_another_name_is_a_list(named: str, tmp_path: Path) -> None:
    net = NET.replace("nn.ModuleList([Attn(dim) for _ in range(depth)])", "several([several([Attn(dim)])])")
    assert net != NET
    text = attention(SPLIT, ASKED).replace(
        NET, named + net.replace("for block in self.blocks:", "for block, in self.blocks:")
    )
    patterns = [row.pattern for row in ported(tmp_path, text).rows if row.names != (r"\1",)]
    assert [one for one in patterns if re.fullmatch(one, "blocks.0.0.q.weight")]
