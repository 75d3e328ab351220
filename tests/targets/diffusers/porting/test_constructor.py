"""Constructors of models: plain arguments, all registered, whatever authors read them from."""

import re
from pathlib import Path

import pytest

from tests.targets.diffusers.porting.small_models import ASKED, NAMESPACE, NET, SPLIT, attention, ported


def test_attributes_of_a_namespace_are_arguments(tmp_path: Path) -> None:
    found = ported(tmp_path, NAMESPACE)
    assert "def __init__(self, width, out, scale, patch=2):" in found.text
    assert "* self.config.scale" in found.text
    assert "args" not in found.text.partition("class Tiny")[2]


@pytest.mark.parametrize(("test", "turned"), [("isinstance(size, tuple)", True), ("size", False)])
def test_what_must_be_a_tuple_is_one(test: str, turned: bool, tmp_path: Path) -> None:
    text = NET.replace("depth=2", "size=(2, 2)").replace("depth", f"len(size) if {test} else 1")
    found = ported(tmp_path, attention(SPLIT, ASKED).replace(NET, text))
    assert ("size = tuple(size)" in found.text) is turned


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


def test_a_precision_that_has_another_name_too_follows_the_parameters(tmp_path: Path) -> None:
    line = "self.dtype = dtype = torch.float16 if depth > 9 else torch.float32\n        self.blocks = nn"
    text = (
        attention(SPLIT, ASKED).replace("self.blocks = nn", line).replace("x = block(x)", "x = block(x.to(self.dtype))")
    )
    found = ported(tmp_path, text).text
    assert "hidden_states.to(self.dtype)" in found
    assert "dtype = torch.float16 if" in found
    assert "dtype_" not in found


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


@pytest.mark.parametrize(("read", "stays"), [("pass", False), ("self.more = more", True)])
def test_arguments_in_a_star_that_nothing_reads_are_left_out(read: str, stays: bool, tmp_path: Path) -> None:
    text = (
        attention(SPLIT, ASKED)
        .replace("depth=2):", "depth=2, *more, **rest):")
        .replace("self.blocks = nn", f"{read}\n        self.blocks = nn")
    )
    assert ("*more" in ported(tmp_path, text).text) is stays


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
