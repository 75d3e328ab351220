"""The rewriting of authors' code: what it becomes, in the words of the file."""

import ast
import re
from pathlib import Path
from typing import Any

import libcst as cst
import pytest

from omni_kit.errors import Refusal
from omni_kit.pysource.eval import Unsupported
from omni_kit.pysource.library import find_library
from omni_kit.targets.diffusers.porting.forward import lists_of_blocks
from omni_kit.targets.diffusers.porting.labels import guiding_methods
from omni_kit.targets.diffusers.porting.port import Port, port
from omni_kit.targets.diffusers.porting.rearranging import written_out
from omni_kit.upstream.repositories.reference import find_reference
from tests.conftest import first

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


NAMESPACE = """
class Net(nn.Module):
    def __init__(self, args, patch=2):
        super().__init__()
        self.args = args
        self.width = width = args.width
        self.proj = nn.Linear(width, args.out)

    def forward(self, x, t):
        return self.proj(x) * self.args.scale
"""


def test_attributes_of_a_namespace_are_arguments(tmp_path: Path) -> None:
    found = ported(tmp_path, NAMESPACE)
    assert "def __init__(self, width, out, scale, patch=2):" in found.text
    assert "* self.config.scale" in found.text
    assert "args" not in found.text.partition("class Tiny")[2]


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


@pytest.mark.parametrize(("test", "turned"), [("isinstance(size, tuple)", True), ("size", False)])
def test_what_must_be_a_tuple_is_one(test: str, turned: bool, tmp_path: Path) -> None:
    text = NET.replace("depth=2", "size=(2, 2)").replace("depth", f"len(size) if {test} else 1")
    found = ported(tmp_path, attention(SPLIT, ASKED).replace(NET, text))
    assert ("size = tuple(size)" in found.text) is turned


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


def test_a_namesake_of_what_the_file_has_from_diffusers_is_not_imported(tmp_path: Path) -> None:
    text = attention(SPLIT, ASKED).replace("class Net(nn.Module)", "class Net(nn.Module, PeftAdapterMixin)")
    found = ported(tmp_path, f"from transformers.integrations import PeftAdapterMixin\n\n\n{text}")
    assert "transformers" not in found.text
    assert "PeftAdapterMixin" in found.text


ANNOTATED = """
import no_such_types
from no_such_types import Shaped


class Typing:
    def __init__(self, kind):
        self.kind = kind

    def __getitem__(self, shape):
        return self.kind[torch.Tensor, shape]


Float = Typing(no_such_types.Float)
SCALE = {scale}


def scaled(t: Float["b"], by: float = 2.0) -> Float["b"] | None:
    # by a number
    half: Shaped["b"] = t * by
    return half * SCALE


class Net(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.proj = nn.Linear(dim, dim)

    def forward(self, x: "torch.Tensor", t: Float["b"] = None):
        return self.proj(x) * scaled(t)
"""


def test_types_of_packages_that_diffusers_does_not_need_are_left_out(tmp_path: Path) -> None:
    found = ported(tmp_path, ANNOTATED.format(scale="3.0")).text
    assert "def scaled(t, by: float = 2.0):" in found
    assert "    # by a number\n    half = t * by\n" in found
    assert "no_such_types" not in found
    assert "Typing" not in found


def test_parentheses_around_such_types_are_left_out(tmp_path: Path) -> None:
    around = ANNOTATED.format(scale="3.0").replace(
        '-> Float["b"] | None:', '-> (\n    Float["b"] |\n    None  # maybe\n):'
    )
    found = ported(tmp_path, around.replace('t: Float["b"], by', 't: ((Float["b"])), by')).text
    assert "def scaled(t, by: float = 2.0):" in found


def test_packages_that_code_computes_with_stay(tmp_path: Path) -> None:
    found = ported(tmp_path, ANNOTATED.format(scale="Shaped.scale")).text
    assert "no_such_types" in found
    assert "no_such_types.Float" not in found


MAKES = """
def {name}(dim):
    return nn.Sequential(nn.Linear(dim, dim), nn.ReLU())


class Net(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.ff = {name}(dim)

    def forward(self, x, t):
        return self.ff(x)
"""


@pytest.mark.parametrize(("name", "kept"), [("FeedForward", False), ("feed_forward", True)])
def test_a_function_called_as_a_class_of_diffusers_gets_another_name(name: str, kept: bool, tmp_path: Path) -> None:
    found = ported(tmp_path, MAKES.format(name=name))
    assert (f"def {name}(" in found.text) is kept
    assert "F811" not in found.text


def test_a_class_of_another_package_is_not_imported_from_diffusers_too(tmp_path: Path) -> None:
    text = "from no_such_layers import FeedForward\n" + MAKES.partition("\n\n\n")[2].format(name="FeedForward")
    found = ported(tmp_path, text).text
    assert "import AttentionMixin\n" in found
    assert "F811" not in found


def test_a_type_of_two_modules_is_imported_once(tmp_path: Path) -> None:
    (tmp_path / "other.py").write_text("from collections.abc import Callable\n\nKind = Callable[[int], int]\n")
    head = "from typing import Callable, Optional\n\nfrom other import Kind\n\nMaker = Optional[Callable]\n\n\n"
    init = f"{SPLIT}\nself.kind: Kind = abs\nself.maker: Maker = None"
    found = ported(tmp_path, head + attention(init, ASKED))
    assert "from collections.abc import Callable" in found.text
    assert "from typing import Optional" in found.text


def test_a_text_without_a_value_is_a_plain_text(tmp_path: Path) -> None:
    found = ported(tmp_path, attention(f'{SPLIT}\nassert dim, f"no width"\nassert dim, f"{{dim}}"', ASKED))
    assert 'assert dim, "no width"' in found.text
    assert 'assert dim, f"{dim}"' in found.text
    assert not any("F541" in what for _, what in found.todo)


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


@pytest.mark.parametrize(("early", "renamed"), [("", True), ("    if x is None:\n        return v, k, q\n", False)])
def test_queries_and_keys_of_a_function_within_come_from_layers(early: str, renamed: bool, tmp_path: Path) -> None:
    made = (
        f"def made(x):\n    q, k, v = self.q(x), self.k(x), self.v(x)\n{early}    return q, k, v\n\nq, k, v = made(x)\n"
    )
    found = ported(tmp_path, attention(SPLIT, made + ASKED.partition("\n")[2]))
    assert ("self.to_q = nn.Linear(dim, dim)" in found.text) is renamed


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


LEVELS = """
class Down(nn.Linear):
    pass


class Block(nn.Linear):
    pass


class Net(nn.Module):
    def __init__(self, dim=8, depth=2, halves=True):
        super().__init__()
        self.levels = nn.ModuleList([])
        for at in range(depth):
            self.levels.append(nn.ModuleList([Down(dim, dim) if halves else {other}, nn.ModuleList([Block(dim, dim)])]))

    def forward(self, x, t):
        for down, blocks in self.levels:
            x = blocks[0](x) if down is None else blocks[0](down(x))
        return x
"""


@pytest.mark.parametrize(("other", "block"), [("None", "TinyBlock"), ("Block(dim, dim)", "TinyDown")])
def test_a_part_that_a_level_may_lack_is_no_block(other: str, block: str) -> None:
    init = next(one for one in ast.walk(ast.parse(LEVELS.format(other=other))) if isinstance(one, ast.FunctionDef))
    assert lists_of_blocks(init, {"Down": "TinyDown", "Block": "TinyBlock"}) == {"levels": block}


COLLECTED = """
class Down(nn.Linear):
    pass


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.net = nn.Linear(dim, dim)

    def forward(self, x, t):
        return self.net(x) + t[:, None]


class Net(nn.Module):
    def __init__(self, dim=8, depth=2):
        super().__init__()
        levels = [nn.Linear(dim, dim)]
        for at in range(depth):
            levels.append(Block(dim))
            levels.append(Down(dim, dim))
        self.levels = nn.ModuleList(levels)

    def forward(self, x, t):
        print(x.shape)
        if self.training:
            print("in training")
        for layer in self.levels:
            if isinstance(layer, Block):
                x = layer(x, t)
            else:
                x = layer(x)
                print("narrower")
        return x
"""


def test_blocks_of_a_list_that_is_collected_first_are_checkpointed(tmp_path: Path) -> None:
    found = ported(tmp_path, COLLECTED)
    assert "x = self._gradient_checkpointing_func(layer, x, t)" in found.text.replace("hidden_states", "x").replace(
        "timestep", "t"
    )
    assert '_no_split_modules = ["TinyBlock"]' in found.text


def test_blocks_that_another_method_goes_through_are_checkpointed(tmp_path: Path) -> None:
    inner = "    def forward(self, x, t):\n        return self.through(x, t)\n\n    def through(self, x, t):"
    found = ported(
        tmp_path, COLLECTED.replace("    def forward(self, x, t):\n        print", f"{inner}\n        print")
    )
    assert "x = self._gradient_checkpointing_func(layer, x, t)" in found.text
    assert '_no_split_modules = ["TinyBlock"]' in found.text


def test_blocks_of_a_list_that_only_foreign_modules_join_are_none(tmp_path: Path) -> None:
    text = COLLECTED.replace("append(Block(dim))", "append(nn.Identity())").replace("append(Down(", "append(nn.Linear(")
    assert "_gradient_checkpointing_func" not in ported(tmp_path, text).text


def test_lines_that_only_print_are_left_out(tmp_path: Path) -> None:
    text = COLLECTED.replace("        print(x.shape)", "        shown = print\n        shown(x.shape)")
    assert "print(" not in (found := ported(tmp_path, text).text).replace("shown = print", "")
    assert "shown(" in found
    assert "self.training" not in found


@pytest.mark.parametrize(("ends", "said"), [
    ("exit()", "The model does not support these inputs."), ("sys.exit('too narrow')", "too narrow"),
])  # fmt: skip
def test_where_authors_end_the_process_a_port_raises(ends: str, said: str, tmp_path: Path) -> None:
    ended = f"        if x is None:\n            {ends}\n        print(x.shape)"
    text = ported(tmp_path, "import sys\n" + COLLECTED.replace("        print(x.shape)", ended)).text
    assert f'raise ValueError("{said}")' in text.replace("'", '"')
    assert "exit" not in text


def test_named_arguments_reach_a_checkpoint(tmp_path: Path) -> None:
    text = attention(SPLIT, ASKED).replace("x = block(x)", "x = block(**{'x': x})")
    assert "functools.partial(block, **{" in ported(tmp_path, text).text


BY_DEVICE = """
class Block(nn.Linear):
    pass


class Net(nn.Module):
    def __init__(self, dim=8, depth=2):
        super().__init__()
        self.blocks = nn.ModuleList([Block(dim, dim) for _ in range(depth)])

    def forward(self, x, t):
        places = {call}
        for i in range(len(self.blocks) // 2, len(self.blocks)):
            self.blocks[i].train()
        for i, block in enumerate(self.blocks):
            x = block(x)
        return x + places.float()
"""
_SUPPORTED = 'torch.float32 if x.device.type in ("mps", "npu") else torch.float64'


@pytest.mark.parametrize(("call", "written"), [
    ("torch.arange(8, dtype=torch.float64, device=x.device)",
     f"torch.arange(8, dtype={_SUPPORTED}, device=x.device)"),
    ("x[:, 0].to(torch.float64)", f"x[:, 0].to({_SUPPORTED})"),
    ("x.double()", f"x.to({_SUPPORTED})"),
    ("torch.arange(8, dtype=torch.float64)", "torch.arange(8, dtype=torch.float64)"),  # on a CPU
    ("torch.arange(8).to(torch.float64)", "torch.arange(8).to(torch.float64)"),
    ("x.to(torch.float32)", "x.to(torch.float32)"),
])  # fmt: skip
def test_float64_is_for_devices_that_have_it(call: str, written: str, tmp_path: Path) -> None:
    """A loop over numbers of blocks is none over blocks."""
    import torch

    found = ported(tmp_path, BY_DEVICE.replace("{call}", call))
    text = ast.unparse(ast.parse(found.text.replace("hidden_states", "x")))
    assert f"places = {ast.unparse(ast.parse(written))}" in text
    assert found.forward.blocks == {"blocks": "TinyBlock"}
    x = torch.arange(16.0).reshape(2, 8)
    names = {"torch": torch, "x": x}
    assert torch.equal(eval(written, dict(names)), eval(call, dict(names)))


@pytest.mark.parametrize(("call", "written"), first(2, [
    ('rearrange(x, "b l (h d) -> b h l d", h=2)', "x.unflatten(2, (2, -1)).transpose(1, 2)"),
    ('rearrange(x, "b c (h p) -> b h (p c)", p=2)', "x.unflatten(2, (-1, 2)).permute(0, 2, 3, 1).flatten(2, 3)"),
    ('repeat(x, "b l d -> b n l d", n=3)', "x.unsqueeze(1).expand(-1, 3, -1, -1)"),
    ('rearrange(x, "b l d -> (b l) d")', "x.flatten(0, 1)"),
    ('rearrange(x, "b ... -> b (...)")', "x.flatten(1)"),
]))  # fmt: skip
def test_einops_is_written_out(call: str, written: str, tmp_path: Path) -> None:
    import torch
    from einops import rearrange, repeat

    text = attention(SPLIT, f"x = {call}\n{ASKED}")
    found = ported(tmp_path, text, HEAD + "from einops import rearrange, repeat\n")
    assert written in found.text
    assert "einops" not in found.text
    x = torch.arange(48.0).reshape(2, 6, 4)
    assert torch.equal(eval(call, {"rearrange": rearrange, "repeat": repeat, "x": x}), eval(written, {"x": x}))


@pytest.mark.parametrize("call", [
    "rearrange(x, '... (d r) -> ... d r', r=2)",
    "rearrange(x, '... h d -> ... d h')",
    "rearrange(x, '... 1 h (d r) -> ... (h r) d', r=2)",
    "repeat(x, '... d -> ... (d r)', r=2)",
    "repeat(x, '... d -> ... (r d) n', r=2, n=3)",
    "repeat(x, '... h d -> ... n (h m) d', n=2, m=3)",
    "rearrange(x, 'b n ... -> (b n) ...')",
    "rearrange(x, 'b (n m) ... -> m b n ...', m=1)",
    "repeat(x, 'b ... -> (b n) ...', n=2)",
])  # fmt: skip
def test_axes_without_names_stay_as_they_are(call: str) -> None:
    import torch
    from einops import rearrange, repeat

    node = cst.parse_expression(call)
    assert isinstance(node, cst.Call)
    try:
        written = cst.Module([]).code_for_node(written_out(node, call.partition("(")[0]))
    except Unsupported:
        assert "m b n" in call  # a permutation, for which torch needs all axes
        return
    x = torch.arange(96.0).reshape(2, 6, 1, 2, 4)
    assert torch.equal(eval(call, {"rearrange": rearrange, "repeat": repeat, "x": x}), eval(written, {"x": x}))


@pytest.mark.parametrize(("tensors", "written"), [
    ("(x, x + 1)", "(x + 1).unflatten(2, (2, -1)),"),
    ("x.chunk(2, dim=1)", "[one.unflatten(2, (2, -1)) for one in x.chunk(2, dim=1)]"),
])  # fmt: skip
def test_one_pattern_for_several_tensors_is_written_out(tensors: str, written: str, tmp_path: Path) -> None:
    text = attention(SPLIT, f'one, other = rearrange_many({tensors}, "b l (h d) -> b l h d", h=2)\n{ASKED}')
    found = ported(tmp_path, text, HEAD + "from einops_exts import rearrange_many\n")
    assert written in found.text
    assert "rearrange_many" not in found.text


@pytest.mark.parametrize(("name", "patterns"), [("norm_of_it", "['norm']"), ("last", "[]")])
def test_only_modules_with_such_names_stay_in_high_precision(name: str, patterns: str, tmp_path: Path) -> None:
    norm = f"self.{name} = nn.Linear(dim, dim)\nnn.functional.normalize(self.{name}.weight)"
    found = ported(tmp_path, attention(f"{SPLIT}\n{norm}", ASKED))
    assert f"_skip_layerwise_casting_patterns = {patterns}".replace("'", '"') in found.text


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


def test_what_cannot_be_written_out_is_said(tmp_path: Path) -> None:
    text = attention(SPLIT, f'x = rearrange(x, "b ... d -> b (...) d")\n{ASKED}')
    found = ported(tmp_path, text, HEAD + "from einops import rearrange\n")
    marked = found.text.splitlines()
    assert {what.split(" (")[0] for _, what in found.todo} >= {"write rearrange out with torch's own methods"}
    assert all("TODO(omni-kit)" in marked[line - 1] for line, _ in found.todo)


@pytest.mark.parametrize(("line", "call"), [
    ("import flash_attn", "flash_attn.go"), ("from flash_attn_interface import go as went", "went"),
])  # fmt: skip
def test_flags_of_packages_that_may_not_be_there_come_along(line: str, call: str, tmp_path: Path) -> None:
    guard = f"try:\n    {line}\n    FLASH = True\nexcept ImportError:\n    FLASH = False\n\n\n"
    helper = (
        f"def attend(q, k, v):\n    if FLASH:\n        return {call}(q, k, v)\n"
        "    return F.scaled_dot_product_attention(q, k, v)\n\n\n"
    )
    text = helper + attention(SPLIT, ASKED.replace("F.scaled_dot_product_attention", "attend"))
    found = ported(tmp_path, text, HEAD + guard)
    kept = f"try:\n    {line}\n\n    FLASH = True\nexcept ImportError:\n    FLASH = False\n"
    assert kept in found.text  # a blank line is ruff's


@pytest.mark.parametrize("read", [True, False])
def test_a_models_own_words_are_not_taken(read: bool, tmp_path: Path) -> None:
    line = (
        "self.dtype = torch.get_default_dtype()\n        self.blocks = nn"
        if read
        else "self.dtype = 1\n        self.blocks = nn"
    )
    text = attention(SPLIT, ASKED).replace("self.blocks = nn", line)
    text = text.replace("x = block(x)", "x = block(x.to(self.dtype))") if read else text
    assert ("self.dtype_ = torch.get_default_dtype()" in (found := ported(tmp_path, text)).text) is read
    assert bool(found.todo) is read
    assert "self.dtype =" not in found.text


WAVES = (
    "def waves(t, dim):\n    t = t[:, None].float() * torch.arange(dim // 2)\n"
    "    return torch.cat([torch.cos(t), torch.sin(t)], dim=-1)\n\n\n"
)


@pytest.mark.parametrize("made", ["torch.float32", "torch.float16 if depth > 9 else torch.float32"])
@pytest.mark.parametrize(("layer", "called"), [
    ("nn.Sequential(nn.Linear(dim, dim), nn.SiLU())", "self.t_in(waves(t, self.dim))"),
    ("nn.Linear(dim, dim)", "self.t_in(y)"),
    ("nn.Sequential(nn.Identity(), nn.Linear(dim, dim))", "self.t_in(y)"),
    ("nn.Linear(dim, dim) if depth > 9 else nn.Identity()", "self.t_in(waves(t, self.dim))"),
])  # fmt: skip
def test_a_model_runs_in_the_precision_that_it_is_cast_to(made: str, layer: str, called: str, tmp_path: Path) -> None:
    import torch

    init = f"self.dim = dim\n        self.dtype = {made}\n        self.t_in = {layer}\n        self.blocks = nn"
    body = "y = waves(t, self.dim)\n        y = y.to(x.device)\n        x = x.type(self.dtype)"
    body += f" + {called}[:, None]\n        for block"
    net = NET.replace("self.blocks = nn", init).replace("for block", body)
    found = ported(tmp_path, WAVES + attention(SPLIT, ASKED).replace(NET, net))
    assert not found.todo
    assert "dtype_" not in found.text
    names: dict[str, Any] = {"__name__": "ported"}
    exec(compile(found.text, "ported.py", "exec"), names)
    model = names[found.class_name]().to(torch.bfloat16)
    given = torch.randn(2, 3, 8, dtype=torch.bfloat16), torch.tensor([1, 2]), torch.randn(2, 3, 8, dtype=torch.bfloat16)
    assert model(*given).sample.dtype == torch.bfloat16


HEADS = "q, k, v = (f(x).unflatten(-1, (2, -1)).transpose(1, 2) for f in (self.q, self.k, self.v))\n"


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


@pytest.mark.parametrize(("repeated", "shared"), first(2, [
    ("k, v = k.repeat_interleave(2, dim=1), v.repeat_interleave(2, 1)", False),
    ("k = k.repeat_interleave(2, dim=1)\nv = torch.repeat_interleave(v, 2, dim=-3)", True),
    ("k = k.repeat_interleave(2, dim=1)\nv = v.repeat_interleave(4, dim=1)", False),
    ("k = k.repeat_interleave(2, dim=1)\nv = v.repeat_interleave(2, dim=2)", False),
    ("k = k.repeat_interleave(2, dim=1)\nv = v.repeat_interleave(2, dim=1)\nself.seen = k", False),
    ("k = k.repeat(1, 2, 1, 1)\nv = v.repeat(1, 2, 1, 1)", False),
]))  # fmt: skip
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


PACKAGES = """if self.sparse and x.shape[1] > 3:
    y = sparse_attention(q, k, v)
elif self.third:
    from flash_attn_interface import flash_attn_func
    y = flash_attn_func(q.mT, k, v)
elif self.second:
    from {package} import flash_attn_func
    y = flash_attn_func(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)).transpose(1, 2)
else:
    raise RuntimeError
return self.o(y.transpose(1, 2).flatten(2))"""


@pytest.mark.parametrize(("package", "chosen"), [("flash_attn", True), ("flash_attn_interface", False)])
def test_kernels_of_one_name_are_told_apart_by_their_packages(package: str, chosen: bool, tmp_path: Path) -> None:
    flags = "".join(f"self.{name} = False\n" for name in ("sparse", "third", "second"))
    own = attention(f"{SPLIT}\n{flags}", f"{HEADS}{PACKAGES.format(package=package)}")
    text = ported(tmp_path, f"def sparse_attention(q, k, v):\n    return q\n\n\n{own}").text
    assert ("raise RuntimeError" not in text and "import flash_attn_func" not in text) is chosen
    assert ("dispatch_attention_fn(" in text) is chosen


TWO_VERSIONS = """MODE = None
try:
    try:
        from flash_attn_interface import flash_attn_func
        MODE = 'third'
    except ImportError:
        from flash_attn import flash_attn_func
        MODE = 'second'
except ImportError:
    import torch.nn.functional as F
    MODE = 'plain'


def attend(q, k, v):
    if MODE == 'third':
        return flash_attn_func(q, k, v)[0]
    elif MODE == 'second':
        return flash_attn_func(q, k, v)
    return F.scaled_dot_product_attention(q, k, v)


class OwnProcessor:
    def __call__(self, attn, q, k, v):
        return attend(q, k, v)


"""


def test_a_function_of_several_packages_and_a_processor_of_the_authors_use_the_dispatch(tmp_path: Path) -> None:
    """Two of the branches call functions of one name, and torch's functions are imported by a handler."""
    rest = "    else:\n        return F.scaled"
    head = "import torch\nimport torch.nn as nn\n" + TWO_VERSIONS.replace("    return F.scaled", rest)
    made = f"{SPLIT}\nself.processor = OwnProcessor()"
    found = ported(
        tmp_path, attention(made, "return self.o(self.processor(self, self.q(x), self.k(x), self.v(x)))"), head
    )
    assert "flash_attn" not in found.text
    assert "MODE" not in found.text
    assert "attend(q, k, v, backend=self._attention_backend" in found.text
    assert not [one for one in found.todo if "processor" in str(one)]


@pytest.mark.parametrize("compiled", [True, False])
def test_code_that_authors_compile_is_refused(compiled: bool, tmp_path: Path) -> None:
    made = "load(name='kernels', sources=['kernels.cu'])" if compiled else "None"
    head = f"{HEAD}from torch.utils.cpp_extension import load\nKERNELS = {made}\n"
    text = attention(SPLIT, f"{ASKED.replace('return', 'y = KERNELS.run(y) if KERNELS else y' + chr(10) + 'return')}")
    if compiled:
        with pytest.raises(Refusal, match=r"Net needs C\+\+ or CUDA code compiled at .*m\.py:5"):
            ported(tmp_path, text, head)
    else:
        assert "KERNELS = None" in ported(tmp_path, text, head).text


@pytest.mark.parametrize("built", [True, False])
def test_code_that_a_project_of_the_repository_compiles_is_refused(built: bool, tmp_path: Path) -> None:
    extension = "from torch.utils.cpp_extension import CUDAExtension\nCUDAExtension(name='scans_of_nobody')\n"
    (tmp_path / "csrc").mkdir()
    (tmp_path / "csrc" / "setup.py").write_text(extension if built else "")
    text = attention(SPLIT, f"x = scans_of_nobody.run(x)\n{ASKED}")
    if built:
        with pytest.raises(Refusal, match=r"Net needs C\+\+ or CUDA code compiled at .*csrc/setup\.py:2"):
            ported(tmp_path, text, f"{HEAD}import scans_of_nobody\n")
    else:
        assert "import scans_of_nobody" in ported(tmp_path, text, f"{HEAD}import scans_of_nobody\n").text


COPIED = """
class Net(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.proj = nn.Linear(dim, dim)

    def merged(self):
        self.weight = self.proj.weight.detach(){more}
        self.bias = self.proj.bias.detach()
        self.weight{index} += 1.0

    def forward(self, x, t):
        self.merged()
        return F.linear(x, self.weight, self.bias)
"""


@pytest.mark.parametrize(("more", "index", "copies"), [("", "[:, 1:]", 1), ("", "", 1), (".float()", "", 0)])
def test_parameters_that_authors_detach_and_change_in_place_are_copied(
    more: str, index: str, copies: int, tmp_path: Path
) -> None:
    found = ported(tmp_path, COPIED.format(more=more, index=index)).text
    assert found.count("detach().clone()") == copies
    assert "self.bias = self.proj.bias.detach()\n" in found


CACHED = """
class Layer(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.proj = nn.Linear(dim, dim)

    def merged(self):
        self.weight = self.proj.weight{detached} * 2

    def cleared(self):
        self.weight = None

    def train(self, mode=True):
        self.training = mode
        if mode:
            self.cleared()
        else:
            self.merged()
        {more}

    def forward(self, x):
        \"\"\"Project.\"\"\"
        return self.proj(x) if self.training else F.linear(x, self.weight)


class Net(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.layer = Layer(dim)

    def forward(self, x, t):
        return self.layer(x)
"""


@pytest.mark.parametrize(("detached", "more", "each_time"), [
    (".detach()", "return self", True),
    (".detach()", "self.extra = 1", False),
    ("", "return self", False),
])  # fmt: skip
def test_what_is_made_of_weights_is_made_in_each_forward(
    detached: str, more: str, each_time: bool, tmp_path: Path
) -> None:
    found = ported(tmp_path, CACHED.format(detached=detached, more=more)).text
    assert ("if not self.training:\n            self.merged()" in found) is each_time
    assert ("def train" in found) is not each_time


DATACLASS = """
from dataclasses import dataclass


@dataclass(eq=False)
class Net(nn.Module):
    width: int
    depth: int = 2

    def __post_init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(self.width, self.width) for _ in range(self.depth)])

    def forward(self, x, t):
        return self.layers[0](x)
"""


def test_a_module_that_is_a_dataclass_gets_a_constructor(tmp_path: Path) -> None:
    text = ported(tmp_path, DATACLASS).text.partition("class TinyTransformer2DModel")[2]
    assert "@register_to_config" in text
    assert "def __init__(self, width: int, depth: int = 2):" in text
    assert "self.__post_init__()" in text
    assert "@dataclass" not in text


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


CLOCK = "self.clock = nn.Sequential(nn.Linear(dim, dim), nn.SiLU(), nn.Linear(dim, dim))"


@pytest.mark.parametrize(("made", "used", "name"), first(6, [
    (CLOCK, "self.clock(t)", "time_embed"),
    (CLOCK, "self.clock(self.clock(t))", "time_embed"),
    (CLOCK, "self.clock(t) + self.clock(x)", "clock"),
    ("self.clock = activation(dim)", "self.clock(t)", "clock"),
    ("self.clock = nn.SiLU()", "self.clock(t)", "clock"),
    (f"{CLOCK}; self.t_embedder = nn.Linear(dim, dim)", "self.clock(t // 2) + self.t_embedder(self.clock(t))", "clock"),
]))  # fmt: skip
def test_a_module_without_parameters_or_of_other_values_is_no_time_embedding(
    made: str, used: str, name: str, tmp_path: Path
) -> None:
    text = NAMED.replace(CLOCK, made).replace("self.clock(t)", used)
    chosen = "def activation(dim):\n    if dim > 4:\n        return nn.ELU()\n    return nn.SiLU()\n\n\n"
    assert f"self.{name} = " in ported(tmp_path, text.replace("class Norm(", f"{chosen}class Norm(", 1)).text


@pytest.mark.parametrize("more", first(1, [
    "        self.register_buffer('transformer_blocks', torch.ones(1))\n", "        self.transformer_blocks = 3\n",
    "        setattr(self, 'transformer_blocks', 3)\n",
    "        getattr(self, 'stack')\n", "        self.made = [Layer]\n",
]))  # fmt: skip
def test_names_that_are_taken_or_written_as_texts_stay(more: str, tmp_path: Path) -> None:
    found = ported(tmp_path, NAMED.replace("        self.inner =", f"{more}        self.inner ="))
    assert "self.stack" in found.text or "self.between" in found.text


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
    text = attention("", f"{ASKED}").replace("class Attn(nn.Module):", "class Attn(Base):")
    text = text.replace("super().__init__()\n", "super().__init__(dim, bias=False)\n", 1)
    found = ported(tmp_path, base + text)
    assert "class TinyBase" not in found.text
    assert "self.to_out = nn.ModuleList([nn.Linear(dim, dim, bias=bias), nn.Dropout" in found.text
    assert "bias = False" in found.text


FIRST = """        self.table = nn.Parameter(torch.zeros(1, dim), requires_grad=False)
        self.apply(self._init_weights)
        self.fill()
"""
METHODS = """
    def _init_weights(self, m):
        if isinstance(m, nn.Linear):
            nn.init.xavier_uniform_(m.weight)
        elif not isinstance(m, nn.ModuleList):
            raise RuntimeError(f"{m} is not known")

    def fill(self):
        nn.init.zeros_(self.blocks[0].o.weight)
        made = torch.arange(3.0)
        self.table.data.copy_(made)
        for block in self.blocks:
            nn.init.constant_(block.o.bias, 0)

    @torch.jit.ignore
    def no_weight_decay(self):
        return {"table"}
"""


def test_first_values_are_left_out_and_what_is_computed_stays(tmp_path: Path) -> None:
    text = attention(SPLIT, ASKED).replace("depth)])\n", f"depth)])\n{FIRST}{METHODS}", 1)
    found = ported(tmp_path, text)
    assert "nn.init" not in found.text
    assert "no_weight_decay" not in found.text
    assert 'self.register_buffer("table", torch.zeros(1, dim), persistent=True)' in found.text
    assert "made = torch.arange(3.0)\n        self.table.data.copy_(made)" in found.text
    assert "self.to_q = nn.Linear" in found.text  # nobody asks for the layers by name any more


OF_PARTS = """
    def initialize_weights(self):
        def once(layer):
            nn.init.zeros_(layer.weight)

        for block in self.blocks:
            once(block.o)
            block.initialize_weights()
"""


@pytest.mark.parametrize(("value", "left"), [("nn.init.ones_(self.o.weight)", False), ("self.scale = 2.0", True)])
def test_first_values_of_parts_are_left_out_unless_they_are_more(value: str, left: bool, tmp_path: Path) -> None:
    text = attention(SPLIT, ASKED).replace("depth)])\n", f"depth)])\n        self.initialize_weights()\n{OF_PARTS}", 1)
    own = f"    def initialize_weights(self):\n        {value}\n\n    def forward("
    found = ported(tmp_path, text.replace("    def forward(", own, 1))
    assert ("initialize_weights" in found.text) == ("nn.init" in found.text) == left


@pytest.mark.parametrize(("value", "first"), [
    ("None", 'self.register_buffer("table", None)'), ("dim", "self.table = dim"),
])  # fmt: skip
def test_what_is_none_before_it_is_a_buffer_is_one_at_once(value: str, first: str, tmp_path: Path) -> None:
    text = attention(SPLIT, ASKED).replace("depth)])\n", f"depth)])\n        self.table = {value}\n{FIRST}{METHODS}", 1)
    assert f"{first}\n" in ported(tmp_path, text).text


@pytest.mark.parametrize(("read", "stays"), [("pass", False), ("self.more = more", True)])
def test_arguments_in_a_star_that_nothing_reads_are_left_out(read: str, stays: bool, tmp_path: Path) -> None:
    text = (
        attention(SPLIT, ASKED)
        .replace("depth=2):", "depth=2, *more, **rest):")
        .replace("self.blocks = nn", f"{read}\n        self.blocks = nn")
    )
    assert ("*more" in ported(tmp_path, text).text) is stays


def test_a_method_that_computes_more_than_first_values_stays(tmp_path: Path) -> None:
    more = METHODS.replace("made = torch", "self.kept = torch")
    text = attention(SPLIT, ASKED).replace("depth)])\n", f"depth)])\n{FIRST}{more}", 1)
    assert "self.kept = torch.arange" in ported(tmp_path, text).text


def test_wrappers_of_the_authors_are_left_out(tmp_path: Path) -> None:
    text = attention(SPLIT, ASKED).replace(
        "x = block(x)", "x = torch.utils.checkpoint.checkpoint(block, x.cuda(), use_reentrant=False)"
    )
    found = ported(tmp_path, text)
    assert "torch.utils.checkpoint" not in found.text
    assert "cuda" not in found.text
    assert "self._gradient_checkpointing_func(block, hidden_states.to(hidden_states.device))" in found.text


@pytest.mark.parametrize(("cast", "stays"), [
    ("x.to(torch.bfloat16)", False), ("x.half()", False), ("x.to(dtype=torch.float16)", False),
    ("x.to(torch.float32)", True), ("x.to(t.dtype)", True), ("half(x)", False),
])  # fmt: skip
def test_a_cast_to_half_precision_is_one_to_that_of_the_input(cast: str, stays: bool, tmp_path: Path) -> None:
    text = NET.replace("x = block(x)", f"x = block({cast})").replace("Attn(dim)", "nn.Linear(dim, dim)")
    if cast == "half(x)":
        text = text.replace("class Net", "def half(x, low=torch.bfloat16):\n    return x.to(low)\n\n\nclass Net", 1)
        found = ported(tmp_path, text).text
        assert "input_dtype = x.dtype\n    return x.to(input_dtype)" in found
        return
    found = ported(tmp_path, text).text
    assert ("input_dtype = hidden_states.dtype\n" in found) != stays
    assert ("hidden_states.to(input_dtype)" in found or "hidden_states.to(dtype=input_dtype)" in found) != stays
    assert not re.search("float16|half", found)


OWN_GRADIENT = """
class Scaled(torch.autograd.Function):
    @staticmethod
    def forward({arguments}):
        ctx.scale = 2.0
        y = x * ctx.scale
        return {returned}

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.scale


class Net(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.proj = nn.Linear(dim, dim)

    def forward(self, x, t):
        return Scaled.apply(self.proj(x))
"""


@pytest.mark.parametrize(("arguments", "returned", "line"), [
    ("ctx, x", "y.to(torch.float16).view(x.shape)", "input_dtype = x.dtype"),
    ("context, x: torch.Tensor", "y.half() if x.requires_grad else y", "input_dtype = x.dtype"),
    ("ctx, x", "y.to(torch.float32).view(x.shape)", ""), ("ctx, x", "y.cuda().view(x.shape)", "return y.to(x.device)"),
])  # fmt: skip
def test_what_autograd_hands_on_is_no_tensor(arguments: str, returned: str, line: str, tmp_path: Path) -> None:
    text = OWN_GRADIENT.format(arguments=arguments, returned=returned)
    found = ported(tmp_path, text.replace("ctx.", "context.") if "context" in arguments else text).text
    assert line in found
    assert not re.search(r"(ctx|context)\.(dtype|device)", found)
    assert ("input_dtype" in found) == ("input_dtype" in line)


PROBED = """
def is_fast_available():
    try:
        {line}
        return True
    except {error}:
        return False


class Net(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.proj = nn.Linear(dim, dim)

    def forward(self, x, t):
        return self.proj(x) * 2 if is_fast_available() else self.proj(x)
"""


@pytest.mark.parametrize(("line", "error", "written"), [
    ("import fast_kernels", "Exception", "import fast_kernels  # noqa: F401"),
    ("from fast_kernels import go as went", "Exception", "from fast_kernels import go as went  # noqa: F401"),
    ("from fast_kernels import go  # noqa", "(OSError, Exception)", "from fast_kernels import go  # noqa"),
    ("import fast_kernels", "ImportError", "import fast_kernels"),
    ("from fast_kernels import go", "ImportError", "from fast_kernels import go"),
    ("import fast_kernels; fast_kernels.go()", "Exception", "import fast_kernels"),
])  # fmt: skip
def test_what_finds_out_whether_a_package_is_there_still_does(
    line: str, error: str, written: str, tmp_path: Path
) -> None:
    found = ported(tmp_path, PROBED.format(line=line, error=error)).text
    body = found.partition("def is_fast_available():\n    try:\n        ")[2].partition("\n")[0]
    assert body == written
    own: dict[str, Any] = {}
    exec("def is_fast" + found.partition("def is_fast")[2].partition("class Tiny")[0], own)
    assert not own["is_fast_available"]()


def test_what_a_flag_of_a_file_imports_stays(tmp_path: Path) -> None:
    guard = "try:\n    import fast_kernels\n    FAST = True\nexcept Exception:\n    FAST = False\n"
    text = PROBED.partition("class Net")[2].replace("is_fast_available()", "FAST")
    found = ported(tmp_path, f"{guard}\n\nclass Net{text}").text
    assert "try:\n    import fast_kernels  # noqa: F401\n\n    FAST = True\nexcept Exception:" in found


@pytest.mark.parametrize(("given", "called"), [
    ("(x, t), self.parameters(), True", "block(hidden_states, timestep)"),
    ("(x,), (), self.training", "block(hidden_states)"),
    ("self.given, self.parameters(), True", "block(*self.given)"),
    ("self.given, x, t", "block(self.given, hidden_states, timestep)"),
    ("inputs=(x, t), params=self.parameters(), flag=True", "block(hidden_states, timestep)"),
    ("(x, t), x, t", "block((hidden_states, timestep), hidden_states, timestep)"),
])  # fmt: skip
def test_inputs_of_a_checkpoint_may_stand_in_a_tuple(given: str, called: str, tmp_path: Path) -> None:
    text = NET.replace("x = block(x)", f"x = checkpoint(block, {given})").replace("Attn(dim)", "nn.Linear(dim, dim)")
    assert called in ported(tmp_path, text).text


DECODER = """
class Net(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.decoder = nn.TransformerDecoderLayer(dim, 2)
        self.own = nn.Linear(dim, dim)

    def trained(self):
        return [one for one in self.modules() if isinstance(one, nn.MultiheadAttention)]

    def forward(self, x, t):
        return self.decoder(self.own(x), t) if self.trained() else x
"""


@pytest.mark.parametrize(("made", "replaced", "left"), [
    ("nn.Linear(dim, dim)", False, 0),
    ("nn.MultiheadAttention(dim, 2)", True, 0),
    ("nn.MultiheadAttention(dim, 2, add_bias_kv=True)", False, 1),
])  # fmt: skip
def test_torchs_attention_is_replaced_where_the_authors_make_it(
    made: str, replaced: bool, left: int, tmp_path: Path
) -> None:
    found = ported(tmp_path, DECODER.replace("nn.Linear(dim, dim)", made))
    assert ("class TinyMultiheadAttention" in found.text) is replaced
    assert ("isinstance(one, nn.MultiheadAttention)" in found.text) is not replaced
    assert sum("add_bias_kv" in what for _, what in found.todo) == left


FF = """
class Ff(nn.Module):
    def __init__(self, dim, hidden, act=nn.GELU, drop=0.0):
        super().__init__()
        self.a = nn.Linear(dim, hidden)
        self.act = act()
        self.drop = nn.Dropout(drop)
        self.b = nn.Linear(hidden, dim)

    def forward(self, x):
        return self.b(self.drop(self.act(self.a(x))))


"""


@pytest.mark.parametrize(("made", "written"), first(2, [
    ("Ff(dim, 4 * dim)", 'FeedForward(dim, inner_dim=4 * dim, activation_fn="gelu")'),
    ("Ff(dim, dim, act=lambda: nn.GELU(approximate='tanh'))", 'activation_fn="gelu-approximate"'),
    ("nn.Sequential(nn.Linear(dim, 9), nn.SiLU(), nn.Linear(9, dim))", 'inner_dim=9, activation_fn="linear-silu"'),
    ("Ff(dim, dim, drop=0.1)", ""),
    ("Ff(dim, dim, act=nn.ReLU)", ""),
]))  # fmt: skip
def test_feed_forwards_are_the_librarys_where_it_computes_the_same(made: str, written: str, tmp_path: Path) -> None:
    layer = NAMED.replace("nn.Sequential(nn.Linear(dim, dim), nn.GELU(), nn.Linear(dim, dim))\n\n    def forward(self, x, y", f"{made}\n\n    def forward(self, x, y")  # fmt: skip  # noqa: E501
    found = ported(tmp_path, FF + layer)
    names = {name for row in found.rows for name in row.names}
    assert (r"transformer_blocks.\1.ff.net.0.proj.\2" in names) is bool(written)
    assert written in found.text
    assert ("class TinyFf" in found.text) is not bool(written)


@pytest.mark.parametrize(("returned", "asked", "written"), [
    ("{'x': x}", "self.forward(x, t, context)['x']", "self.forward(x, t, context, return_dict=False)[0]"),
    ("{'x': x}", "self.forward(x, t,  # (theirs\n            context)['x']",
     "self.forward(x, t, context, return_dict=False)[0]"),
    ("{'x': x}", "self(x, t, context)", "{'x': self(x, t, context, return_dict=False)[0]}"),
    ("{'x': x, 'y': t}", "self(x, t, context)['y']",
     "dict(zip(('x', 'y'), self(x, t, context, return_dict=False)))['y']"),
])  # fmt: skip
def test_a_method_that_asks_for_a_mapping_gets_one(returned: str, asked: str, written: str, tmp_path: Path) -> None:
    method = f"    def forward_with_cfg(self, x, t, context, cfg_scale):\n        return {asked}"
    guided = f"        return {returned}\n\n{method}"
    text = ported(tmp_path, attention(SPLIT, ASKED).replace(NET, NET.replace("        return x", guided))).text
    assert f"return {written}" in text.replace('"', "'")


OUTPUT = "@dataclass\nclass NetOutput(BaseOutput):\n    sample: torch.Tensor\n    mask: torch.Tensor = None\n\n\n"
PLAIN = "if not return_dict:\n            return (hidden_states,)\n        return "
HERE = "Transformer2DModelOutput(sample=hidden_states)"


@pytest.mark.parametrize(("taken", "body", "written"), [
    (", return_dict=True", "if not return_dict:\n            return (x,)\n        return NetOutput(sample=x)",
     PLAIN + HERE),
    (", return_dict=True", "if not return_dict:\n            return x\n        return NetOutput(x)", PLAIN + HERE),
    (", return_dict=True", "if return_dict:\n            return {'x': x}\n        return x", PLAIN + HERE),
    (", return_dict=True", "if return_dict:\n            return NetOutput(x)\n        else:\n            return (x,)",
     PLAIN + HERE),
    (", return_dict=True", "if return_dict:\n            made['x'] = x\n            return made\n        return x",
     PLAIN + HERE),
    ("", "return NetOutput(sample=x)", PLAIN + HERE),
    (", return_dict=True",
     "if not return_dict:\n            return (x, t)\n        return NetOutput(sample=x, mask=t)",
     "return (hidden_states, timestep)\n        return TinyNetOutput(sample=hidden_states, mask=timestep)"),
    ("", "return NetOutput(sample=x, mask=t)",
     "return (hidden_states, timestep)\n        return TinyNetOutput(sample=hidden_states, mask=timestep)"),
])  # fmt: skip
def test_the_authors_own_output_is_no_output_within_diffusers(
    taken: str, body: str, written: str, tmp_path: Path
) -> None:
    net = NET.replace("context):", f"context{taken}):").replace("        return x", f"        {body}")
    head = "from dataclasses import dataclass\nfrom diffusers.utils import BaseOutput\n"
    text = ported(tmp_path, head + attention(SPLIT, ASKED).replace(NET, OUTPUT + net)).text
    assert written in text
    assert text.count("if not return_dict") == 1
    assert "TODO" not in text.partition("def forward(self, hidden_states")[2]
    assert ("class TinyNetOutput" in text) == ("mask=timestep" in written)


LABELLED = """
class Labels(nn.Module):
    def __init__(self, classes, dim, drop):
        super().__init__()
        self.table = nn.Embedding(classes + (drop > 0), dim)

    def forward(self, y):
        return self.table(y)


class Net(nn.Module):
    def __init__(self, in_channels=4, dim=8, depth=2, num_classes=10, drop=0.1):
        super().__init__()
        self.in_channels = in_channels
        self.y_in = Labels(num_classes, dim, drop)
        self.blocks = nn.ModuleList([Attn(dim) for _ in range(depth)])

    def forward(self, x, t, y):
        x = x + self.y_in(y)
        for block in self.blocks:
            x = block(x)
        return x

    def forward_with_cfg(self, x, t, y, cfg_scale, power=2.0):
        half = x[: len(x) // 2]
        out = self.forward(torch.cat([half, half]), t, y)
        eps, rest = out[:, : self.in_channels], out[:, self.in_channels :]
        one, other = eps.chunk(2)
        joined = other + cfg_scale**power * (one - other)
        return torch.cat([torch.cat([joined, joined]), rest], dim=1)
"""


def test_labels_and_how_authors_guide_by_them_are_read(tmp_path: Path) -> None:
    found = ported(tmp_path, attention(SPLIT, ASKED).replace(NET, "") + LABELLED)
    assert found.labels is not None
    assert (found.labels.argument, found.labels.classes, found.labels.more) == ("y", "num_classes", True)
    assert found.forward.names["y"] == "class_labels"
    assert found.guided is not None
    assert found.guided.channels == "self.transformer.config.in_channels"
    assert found.guided.more == {"power": "2.0"}
    assert "forward_with_cfg" not in found.text


def test_a_method_that_guides_and_sets_what_forward_reads_stays(tmp_path: Path) -> None:
    scaled = LABELLED.replace("        half = x[", "        self.scale = power\n        half = x[")
    found = ported(tmp_path, attention(SPLIT, ASKED).replace(NET, "") + scaled)
    assert found.guided is not None
    assert "def forward_with_cfg" in found.text


@pytest.mark.parametrize(("test", "switches"), [("self.mode == 2", {"mode": 2}), ("self.mode > 1", {})])
def test_what_switches_labels_on_is_read(test: str, switches: dict[str, object], tmp_path: Path) -> None:
    switched = LABELLED.replace("drop=0.1):", "drop=0.1, mode=1):").replace(
        "        self.y_in = Labels(num_classes, dim, drop)\n",
        f"        self.mode = mode\n        if {test}:\n            self.y_in = Labels(num_classes, dim, drop)\n",
    )
    found = ported(tmp_path, attention(SPLIT, ASKED).replace(NET, "") + switched)
    assert found.labels is not None
    assert found.labels.switches == switches


def test_labels_that_are_null_by_default_are_none(tmp_path: Path) -> None:
    text = attention(SPLIT, ASKED).replace(NET, "") + LABELLED.replace("num_classes=10", "num_classes=None")
    assert ported(tmp_path, text).labels is None


PLACED = """
class Net(nn.Module):
    def __init__(self, *, device: torch.device, dtype: torch.dtype, width: int = 4):
        super().__init__()
        self.proj = nn.Linear(width, width, device=device, dtype=dtype)

    def forward(self, x, t):
        return self.proj(x)
"""


def test_torch_decides_where_and_in_which_dtype_a_model_is_made(tmp_path: Path) -> None:
    text = ported(tmp_path, PLACED).text
    init = text.partition("def __init__(")[2].partition(")")
    assert "width: int = 4" in init[0]
    assert "device" not in init[0]
    assert "dtype = torch.get_default_dtype()" in init[2]
    assert "device = None" in init[2]
    by_default = PLACED.replace("dtype: torch.dtype,", "dtype: torch.dtype = torch.bfloat16,")
    assert "dtype = torch.get_default_dtype()" in ported(tmp_path, by_default).text


def test_guiding_that_reads_what_only_the_model_has_stays_there(tmp_path: Path) -> None:
    own = LABELLED.replace("cfg_scale**power", "cfg_scale * self.y_in.table.weight.mean()")
    found = ported(tmp_path, attention(SPLIT, ASKED).replace(NET, "") + own)
    assert found.labels is not None
    assert found.guided is None
    assert "def forward_with_cfg" in found.text


def test_what_a_backend_answers_is_reshaped(tmp_path: Path) -> None:
    asked = ASKED.replace("return self.o(y[:, 0])", "return self.o(y.view(1, -1, 8).view(torch.float32))")
    found = ported(tmp_path, attention(SPLIT, asked))
    assert "y.reshape(1, -1, 8).view(torch.float32)" in found.text


INSIDE = f"""class Attn(nn.Module):
    def __init__(self, dim):
        super().__init__()
        from .layers import Scaled as S
        self.q, self.scaled = nn.Linear(dim, dim), S()

    def forward(self, x):
        from . import kernels as K, absent
        import math
        return K.gate(self.scaled(self.q(x))) * math.pi

{NET}"""


def test_what_functions_import_of_the_authors_is_written_here(tmp_path: Path) -> None:
    (tmp_path / "__init__.py").touch()
    (tmp_path / "layers.py").write_text(
        "from torch import nn\n\n\nclass Scaled(nn.Module):\n    def forward(self, x):\n        return 2 * x\n",
        encoding="utf-8",
    )
    (tmp_path / "kernels.py").write_text(
        "def gate(x):\n    from .deep import bent\n    return bent(x)\n", encoding="utf-8"
    )
    (tmp_path / "deep.py").write_text("def bent(x):\n    return x.tanh()\n", encoding="utf-8")
    (tmp_path / "m.py").write_text(HEAD + INSIDE.replace(", absent", ""), encoding="utf-8")
    text = port(find_reference(f"{tmp_path / 'm.py'}::Net"), "Tiny", find_library("diffusers"), "diffusers").text
    assert "from ." not in text
    assert "kernels" not in text
    assert all(one in text for one in ("class TinyScaled(", "def gate(", "def bent(", "TinyScaled()", "gate(self."))
    assert "import math" in text


def test_a_name_that_functions_import_from_two_places_stays_with_them(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / f"{name}.py").write_text("def run(x):\n    return x\n", encoding="utf-8")
    forward = "from one import run\nreturn run(self.other(self.q(x)))"
    more = "\n    def other(self, x):\n        from two import run\n        return run(x)\n"
    text = attention(SPLIT, forward).replace("\n\nclass Net", f"{more}\n\nclass Net")
    assert "from one import run" in ported(tmp_path, text).text
    assert "from two import run" in ported(tmp_path, text).text


QUOTED = """
class Part(nn.Module):
    @classmethod
    def made(cls: type["Part"], width: int) -> "Part":
        return cls(width)

    def __init__(self, width):
        super().__init__()
        self.proj = nn.Linear(width, width)


class Net(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.part = Part.made(width)

    def forward(self, x, t):
        return self.part.proj(x)
"""


def test_names_within_annotations_are_those_of_the_file(tmp_path: Path) -> None:
    text = ported(tmp_path, QUOTED).text
    assert 'cls: type["TinyPart"]' in text
    assert '-> "TinyPart"' in text
    assert "F821" not in text


TYPED = """
class Net(nn.Module):
    def __init__(self, width=4, widths=(4, 4)):
        super().__init__()
        if width is not None:
            from omegaconf.listconfig import ListConfig
            if type(width) == ListConfig:
                width = list(width)
        if isinstance(widths, (ListConfig, tuple)):
            widths = list(widths)
        elif isinstance(widths, ListConfig) or width == 3:
            widths = [3, 3]
        self.proj = nn.Linear(width, widths[0])

    def forward(self, x, t):
        return self.proj(x)
"""


def test_no_argument_has_a_type_of_a_package_that_diffusers_does_not_need(tmp_path: Path) -> None:
    text = ported(tmp_path, TYPED).text
    assert "ListConfig" not in text
    assert "isinstance(widths, tuple)" in text
    assert "elif width == 3:" in text
    assert "width = list(width)" not in text


def test_a_foreign_class_that_is_called_stays(tmp_path: Path) -> None:
    made = TYPED.replace("if type(width) == ListConfig:", "if width:").replace("list(width)", "ListConfig(width)")
    text = ported(tmp_path, made).text
    assert "from omegaconf.listconfig import ListConfig" in text


SHARED = """
class Table(nn.Module):
    def __init__(self, width, learned=False):
        super().__init__()
        LINES

    def forward(self, x):
        return x + self.table


class Inner(nn.Module):
    def __init__(self, width, table=None):
        super().__init__()
        self.proj, self.table = nn.Linear(width, width), None
        self.table = table

    def forward(self, x):
        return self.table(self.proj(x))


class Outer(nn.Module):
    def __init__(self, width, table):
        super().__init__()
        self.inner = Inner(width, table=table)

    def forward(self, x):
        return self.inner(x)


class Net(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        table = MADE
        self.layers = nn.ModuleList([Outer(width, table), Outer(width, table)])

    def forward(self, x, t):
        for layer in self.layers:
            x = layer(x)
        return x
"""


@pytest.mark.parametrize(("lines", "made", "copied"), [
    ('self.register_buffer("table", torch.ones(width))', "Table(width)", True),
    ("self.table = nn.Parameter(torch.ones(width), requires_grad=learned)", "Table(width) if width else None", True),
    ("self.table = nn.Parameter(torch.ones(width), requires_grad=learned)", "Table(width, learned=True)", False),
    ("self.table = nn.Parameter(torch.ones(width))", "Table(width)", False),
    ('self.register_buffer("table", torch.ones(width), persistent=False)', "Table(width)", False),
])  # fmt: skip
def test_a_module_of_constants_that_several_hold_is_copied(lines: str, made: str, copied: bool, tmp_path: Path) -> None:
    text = ported(tmp_path, SHARED.replace("LINES", lines).replace("MADE", made)).text
    assert ("self.table = copy.deepcopy(table)" in text) == ("import copy" in text) == copied


UNREACHABLE = """
class Net(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        if TEST:
            self.proj = Missing(width)
        else:
            self.proj = nn.Linear(width, width)

    def forward(self, x, t):
        if TEST:
            return missing(x)
        return self.proj(x)
"""


def test_code_that_authors_switched_off_is_left_out(tmp_path: Path) -> None:
    found = ported(tmp_path, UNREACHABLE.replace("TEST", "False"))
    assert "issing" not in found.text
    assert "nn.Linear(width, width)" in found.text


def test_code_that_a_value_switches_stays(tmp_path: Path) -> None:
    text = UNREACHABLE.replace("TEST", "FLAG").replace("Missing", "nn.Identity").replace("missing", "nn.Identity()")
    found = ported(tmp_path, text, HEAD + "FLAG = bool(0)\n")
    assert "nn.Identity(width)" in found.text
    assert "nn.Identity()(" in found.text


def test_what_authors_import_from_diffusers_by_another_module_is_imported_once(tmp_path: Path) -> None:
    head = HEAD + "from diffusers.models import AutoencoderKL, ModelMixin\n"
    text = NET.replace("class Net(nn.Module)", "class Net(ModelMixin)").replace("Attn(dim)", "nn.Linear(dim, dim)")
    found = ported(tmp_path, text, head)
    assert found.text.count("import ModelMixin") == 1
    assert "F811" not in found.text


@pytest.mark.parametrize(("width", "name"), [("dim // 2", "q_norm"), ("dim", "norm1")])
def test_norms_of_heads_are_no_norms_of_a_block(width: str, name: str, tmp_path: Path) -> None:
    wrapper = f"""
class Wrapper(nn.Module):
    def __init__(self, dim):
        super().__init__()
        head_dim = {width}
        self.q_norm = nn.LayerNorm({"head_dim" if name == "q_norm" else "dim"})
        self.inner = Attn(dim)

    def forward(self, x):
        return self.inner(self.q_norm(x))
"""
    text = attention(SPLIT, ASKED).replace("class Net(", f"{wrapper.strip()}\n\n\nclass Net(").replace(
        "[Attn(dim)", "[Wrapper(dim)"
    )  # fmt: skip
    assert f"self.{name} = nn.LayerNorm(" in ported(tmp_path, text).text


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


def test_names_of_one_assignment_come_along_together(tmp_path: Path) -> None:
    head = HEAD + "gain, (_, shift) = 2.0, (0, 1.0)\n"
    text = NAMESPACE.replace("self.proj(x) *", "self.proj(x) * gain + shift *")
    assert ported(tmp_path, text, head).text.count("gain, (_, shift) = 2.0, (0, 1.0)\n") == 1


def test_two_assignments_to_one_of_several_names_are_refused(tmp_path: Path) -> None:
    (tmp_path / "other.py").write_text("shift, more = 3.0, 4.0\n\n\ndef moved(x):\n    return x + shift\n")
    head = HEAD + "from .other import moved\n\ngain, shift = 2.0, 1.0\n"
    with pytest.raises(Refusal, match="shift is bound at"):
        ported(tmp_path, NAMESPACE.replace("self.proj(x) *", "moved(x) * gain + shift *"), head)


DEVICES = """
class Net(nn.Module):
    ignore_for_config = ["dim"]

    def __init__(self, dim=8, mean=None):
        super().__init__()
        if mean is None:
            mean = torch.zeros(dim)
        self.mean = nn.Parameter(mean)

    def load_state_dict(self, state_dict, strict=True):
        super().load_state_dict({name[6:]: one for name, one in state_dict.items()}, strict)

    def forward(self, x: float["b n d"], t: int["b"] | int[""]):
        assert x.device.type == "cuda" and x.dim() == 3
        assert x.is_cuda
        assert x.dtype in (torch.float16, torch.bfloat16)
        assert x.dtype in (torch.float32, torch.bfloat16)
        with torch.backends.cuda.sdp_kernel(enable_math=False):
            x = x + self.mean
        with torch.no_grad():
            return x
"""


def test_what_only_the_authors_machine_has_is_left_out(tmp_path: Path) -> None:
    found = ported(tmp_path, DEVICES).text.partition("class Tiny")[2]
    assert "assert x.dim() == 3" in found.replace("hidden_states", "x")
    assert "cuda" not in found
    assert "float16, torch.bfloat16" not in found
    assert "float32, torch.bfloat16" in found
    assert "with torch.no_grad():" in found
    assert "\n        hidden_states = hidden_states + self.mean" in found
    assert "load_state_dict" not in found
    assert "ignore_for_config" not in found
    assert "hidden_states: torch.Tensor, timestep: torch.LongTensor" in found
    init = found.partition("def __init__(")[2].partition(")")[0]
    assert init.split() == ["self,", "dim=8,"]  # a config cannot hold a tensor, and hides the parameter of that name


GUARDED_PACKAGE = """
from diffusers.utils.import_utils import is_torch_npu_available

if is_torch_npu_available():
    import torch_npu


class Net(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        encoders = nn.ModuleList([Attn(dim) for _ in range(2)])
        self.blocks = nn.ModuleList(encoders)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x, t):
        for block in self.blocks:
            x = torch_npu.attend(x) if x.device.type == "npu" else block(x)
        return self.proj(x)
"""


def test_a_package_of_another_device_stays_behind_its_condition(tmp_path: Path) -> None:
    found = ported(tmp_path, GUARDED_PACKAGE, HEAD + attention(SPLIT, ASKED).partition(NET)[0])
    assert "if is_torch_npu_available():\n    import torch_npu" in found.text
    assert "\nimport torch_npu" not in found.text


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


def test_two_functions_of_one_name_are_two(tmp_path: Path) -> None:
    (tmp_path / "other.py").write_text("def scaled(x):\n    return x * 3\n", encoding="utf-8")
    head = HEAD + "from . import other\n\n\ndef scaled(x):\n    return x * 2\n"
    found = ported(tmp_path, NAMESPACE.replace("self.proj(x)", "scaled(other.scaled(self.proj(x)))"), head)
    assert found.text.count("def scaled(") == 1
    assert found.text.count("scaled(x):\n    return x * 3") == 1
    assert "scaled(other_scaled(" in found.text or "_scaled(scaled(" in found.text


HANDED_ON = (
    NAMESPACE.replace("self.proj =", "self.inner = Inner(args)\n        self.proj =")
    + """

class Inner(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.gain = args.get("gain", 2.0)
"""
)


def test_a_namespace_that_is_handed_on_is_the_config(tmp_path: Path) -> None:
    found = ported(tmp_path, HANDED_ON)
    assert "def __init__(self, width, out, scale, gain=2.0, patch=2):" in found.text
    assert "args = self.config" in found.text
    assert "= args.width" not in found.text


MAPPING = """
class Net(nn.Module):
    def __init__(self, width=8, out=4):
        super().__init__()
        self.proj = nn.Linear(width, out)
        self.text = nn.Linear(width, out)

    def forward(self, x, t, cond):
        more = cond.get("more", 0.0)
        return self.proj(x) + self.text({text}).mean(1) + more
"""


@pytest.mark.parametrize(("inside", "kept"), [
    ("hidden_states = []\n        hidden_states.append(x)\n        x = self.proj(hidden_states.pop())",
     "own_hidden_states.append(hidden_states)"),
    ("x = self.inner(hidden_states=x)", "self.inner(hidden_states=hidden_states)"),
])  # fmt: skip
def test_a_local_variable_makes_way_for_an_argument(inside: str, kept: str, tmp_path: Path) -> None:
    text = MAPPING.replace("x, t, cond", "x, t").replace("self.proj(x) + self.text({text}).mean(1) + more", "x")
    found = ported(tmp_path, text.replace('more = cond.get("more", 0.0)', inside))
    assert "def forward(self, hidden_states, timestep," in found.text
    assert kept in found.text


def test_a_function_by_the_name_of_an_argument_stays(tmp_path: Path) -> None:
    text = MAPPING.replace("x, t, cond", "x, t").replace("self.proj(x) + self.text({text}).mean(1) + more", "x")
    helper = "def timestep(x):\n    return x\n\n\n"
    found = ported(tmp_path, helper + text.replace('more = cond.get("more", 0.0)', "x = timestep(x) + t"))
    assert "def forward(self, hidden_states, t," in found.text


def test_items_of_a_mapping_are_arguments(tmp_path: Path) -> None:
    found = ported(tmp_path, MAPPING.format(text='cond["words"]'))
    assert "def forward(self, hidden_states, timestep, encoder_hidden_states, cond_more=None" in found.text
    assert "self.proj_out(encoder_hidden_states)" in found.text
    assert found.forward.names["cond{words}"] == "encoder_hidden_states"
    assert "more = 0.0 if cond_more is None else cond_more" in found.text


def test_a_mapping_that_is_handed_on_stays(tmp_path: Path) -> None:
    found = ported(tmp_path, MAPPING.format(text="self.words(cond)"))
    assert "def forward(self, hidden_states, timestep, encoder_hidden_states, return_dict" in found.text


def test_an_import_by_way_of_another_file_is_made_where_it_comes_from(tmp_path: Path) -> None:
    (tmp_path / "layers.py").write_text("from diffusers.models.normalization import RMSNorm\n")
    attn = "class Attn(nn.Module):\n    def __init__(self, dim):\n        self.norm = RMSNorm(dim, 1e-6)\n"
    text = ported(tmp_path, attn + NET, f"{HEAD}from layers import RMSNorm\n").text
    assert "from diffusers.models.normalization import RMSNorm" in text
    assert "from layers" not in text


@pytest.mark.parametrize(("given", "body", "guides"), [
    ("cfg_scale", "return self.forward(x, t, context) * cfg_scale", True),
    ("cfg_scale", "return x * cfg_scale", False),
    ("depth", "return self.forward(x, t, context)", False),
])  # fmt: skip
def test_a_method_that_guides_takes_a_scale_and_asks_the_model(
    tmp_path: Path, given: str, body: str, guides: bool
) -> None:
    method = f"\n    def with_cfg(self, x, t, context, {given}):\n        {body}\n"
    (tmp_path / "m.py").write_text(HEAD + NET + method, encoding="utf-8")
    found = [(one.name, scale) for one, scale in guiding_methods(find_reference(f"{tmp_path}::Net"))]
    assert found == ([("with_cfg", "cfg_scale")] if guides else [])


@pytest.mark.parametrize(("made", "moved"), [("nn.Linear(dim, dim) if gate else None", True), ("gate", False)])
def test_a_module_called_like_an_argument_is_called_otherwise(made: str, moved: bool, tmp_path: Path) -> None:
    net = NET.replace("depth=2", "depth=2, gate=True").replace(
        "self.blocks =", f"self.gate = {made}\n        self.blocks ="
    )
    found = ported(tmp_path, attention(SPLIT, ASKED).replace(NET, net.replace("return x", "return self.gate, x")))
    assert (("self.gate_ = nn.Linear" in found.text) and ("sample = self.gate_\n" in found.text)) is moved
    assert ((r"gate_\1",) in [row.names for row in found.rows]) is moved


SECTIONS = """
class Net(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        args = config.model.args
        self.kind = config.model.kind.lower()
        self.proj = nn.Linear(args.get("width", 8), config.data.size)

    def forward(self, x, t):
        return self.proj(x) * self.config.model.scale
"""


def test_what_a_config_has_in_sections_is_registered_one_by_one(tmp_path: Path) -> None:
    found = ported(tmp_path, SECTIONS).text.partition("class Tiny")[2]
    init = found.partition("def __init__(")[2].partition("):")[0]
    assert {part.strip() for part in init.split(",")} - {""} == {"self", "kind", "size", "scale", "width=8"}
    assert "self.kind = kind.lower()" in found
    assert "nn.Linear(width, size)" in found
    assert "self.config.scale" in found
    assert "config.model" not in found
    assert "args" not in found


def test_sections_with_one_name_for_two_fields_are_told_apart(tmp_path: Path) -> None:
    lines = """self.gate = config.model.gate if hasattr(config.model, "gate") else False
        self.more = hasattr(config.data, "more")
        self.out = nn.Linear(config.data.size, config.model.size)
        self.out2 = nn.Linear(config["model"]["size"], 4)"""
    text = SECTIONS.replace("        self.proj", f"        {lines}\n        self.proj")
    found = ported(tmp_path, text).text.partition("class Tiny")[2]
    init = found.partition("def __init__(")[2].partition("):")[0]
    assert {"gate=None", "more=None", "size", "model_size"} <= {part.strip() for part in init.split(",")}
    assert "self.gate = gate if (gate is not None) else False" in found
    assert "self.more = more is not None" in found.replace("(more is not None)", "more is not None")
    assert "self.out = nn.Linear(size, model_size)" in found
    assert "self.out2 = nn.Linear(model_size, 4)" in found


@pytest.mark.parametrize(("returned", "written", "left"), [
    ("return x", "return (hidden_states,)", 0),
    ("return {'x': x}", "return (hidden_states,)", 0),
    ("out = dict()\n        out['x'] = x\n        return out", "return (sample,)", 0),
    ("out = {'mean': x.mean()}\n        out['x'] = x\n        return out", "return (sample,)", 1),
    ("return x, x.mean()", "return (hidden_states, hidden_states.mean())", 1),
    ("if deep:\n            return x, x.mean()\n        return x", "    return hidden_states, hidden_states", 0),
])  # fmt: skip
def test_a_forward_returns_the_sample(returned: str, written: str, left: int, tmp_path: Path) -> None:
    net = NET.replace("return x", returned).replace("context):", "context, deep=False):")
    found = ported(tmp_path, attention(SPLIT, ASKED).replace(NET, net))
    assert written in found.text
    assert re.search(r"Transformer2DModelOutput\(sample=(hidden_states|sample)\)", found.text)
    assert sum("output class of its own" in what for _, what in found.todo) == left


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


TESTED = """
class Net(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.layer = nn.Linear(dim, dim)

    def forward(self, x, t, y=None):
        if "text" in y.keys():
            x = x + y["text"]
        if "mask" not in y:
            y["mask"] = torch.ones_like(x)
        return self.layer(x * y["mask"])
"""


def test_tests_whether_a_mapping_has_an_item_become_tests_of_an_argument(tmp_path: Path) -> None:
    text = ported(tmp_path, TESTED).text
    assert "if encoder_hidden_states is not None:" in text
    assert "if encoder_attention_mask is None:" in text
    assert "encoder_attention_mask = torch.ones_like(hidden_states)" in text
    assert "y[" not in text


DATA = """
def conv(width):
    layer = nn.Conv2d(width, width, 1)
    layer.weight.data = torch.zeros(layer.weight.shape)
    return layer


class Net(nn.Module):
    def __init__(self, dim=8, more=True):
        super().__init__()
        self.layer = conv(dim)
        self.table = nn.Parameter(torch.zeros(dim))
        self.table.data = torch.ones(dim)
        if more:
            self.layer.bias.data = torch.ones(dim)

    def forward(self, x, t):
        return self.layer(x) * self.table
"""


def test_data_of_weights_is_not_set_while_they_are_made(tmp_path: Path) -> None:
    text = ported(tmp_path, DATA).text
    assert ".weight.data" not in text
    assert ".bias.data" not in text
    assert "table.data = torch.ones(dim)" in text


@pytest.mark.parametrize(("made", "zeros"), [
    ("torch.Tensor([dim / 2])", False), ("torch.Tensor(dim, 2)", True), ("torch.empty([dim, 2])", True),
])  # fmt: skip
def test_a_parameter_of_values_keeps_them(tmp_path: Path, made: str, zeros: bool) -> None:
    text = ported(tmp_path, DATA.replace("torch.zeros(dim))", f"{made})")).text
    assert ("nn.Parameter(torch.zeros(" in text) is zeros
    assert zeros or f"nn.Parameter({made})" in text


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


def test_a_module_with_the_name_of_an_argument_is_converted_to_its_last_name(tmp_path: Path) -> None:
    text = """
class Net(nn.Module):
    def __init__(self, extra=4, dim=8):
        super().__init__()
        self.proj = nn.Linear(dim, dim)
        self.extra = nn.Linear(dim, extra)

    def forward(self, x, t):
        return self.extra(self.proj(x))
"""
    found = ported(tmp_path, text)
    row = next(one for one in found.rows if re.fullmatch(one.pattern, "extra.weight"))
    name = re.sub(row.pattern, row.names[0], "extra.weight").removesuffix(".weight")
    assert f"self.{name} = nn.Linear" in found.text


def test_an_elif_that_checkpoints_gives_way_to_its_else(tmp_path: Path) -> None:
    text = NET.replace(
        "            x = block(x)\n",
        "            if self.training and t is None:\n                x = x + 1\n"
        "            elif self.use_checkpoint:\n                x = torch.utils.checkpoint.checkpoint(block, x)\n"
        "            else:\n                x = block(x)\n",
    ).replace("self.blocks", "self.use_checkpoint = False\n        self.blocks", 1)
    text += "\nclass Attn(nn.Module):\n    def __init__(self, dim):\n        super().__init__()\n"
    text += "        self.fc = nn.Linear(dim, dim)\n\n    def forward(self, x):\n        return self.fc(x)\n"
    found = ported(tmp_path, text, HEAD + "import torch.utils.checkpoint\n")
    assert "use_checkpoint:" not in found.text
    assert "block(hidden_states)" in found.text


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
