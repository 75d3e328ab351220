"""The interpreter of constructors: what it reads is what torch builds from the same source."""

import importlib.util
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from omni_kit.errors import BadInput
from omni_kit.pysource.classes import ClassRef
from omni_kit.pysource.eval import UNKNOWN
from omni_kit.pysource.library import Library
from omni_kit.pysource.source import SourceFile, read_source
from omni_kit.upstream.construction import Config, Interpreter, Module, Tensor

VALUES = {
    "width": 12, "hidden": 20, "layers": 3, "experts": 4, "bias": False, "kinds": ["full", "slim", "full"], "act": None,
    "sizes": {"q": 6, "k": 4},
}  # fmt: skip

HEAD = """
import copy
import torch
from torch import nn
from torch.nn import Linear as Dense

FACTOR = 2


class Block(nn.Module):
    def __init__(self, config, index=0, wide=False):
        super().__init__()
        self.up = nn.Linear(config.width, config.hidden * (FACTOR if wide else 1), bias=config.bias)
        self.index = index


class Grown(nn.ModuleList):
    def __init__(self, config):
        super().__init__()
        for index in range(config.layers):
            self.append(Block(config, index))


class Own(Grown):
    def append(self, module):
        self.add_module(f"own_{module.index}", module)


class Base(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.first = nn.Embedding(7, config.width)
        self.build()

    def build(self):
        self.made = nn.Linear(1, 2)
"""

CASES = {
    "linear layers with and without a bias": "self.a = nn.Linear(c.width, c.hidden); self.b = Dense(3, 4, bias=c.bias)",
    "parameters and buffers": (
        "self.w = nn.Parameter(torch.empty(c.experts, 2 * c.hidden, c.width)); "
        "self.register_buffer('kept', torch.zeros(c.experts)); "
        "self.register_buffer('gone', torch.ones(3), persistent=False)"
    ),
    "a list of blocks": "self.blocks = nn.ModuleList([Block(c, i) for i in range(c.layers)])",
    "a list that grows": (
        "self.blocks = nn.ModuleList()\n"
        "        for i in range(c.layers):\n"
        "            self.blocks.append(Block(c, i, wide=i == 1))"
    ),
    "a class of lists that grows": "self.grown = Grown(c)",
    "a class of lists that grows in its own way": "self.own = Own(c)",
    "a local list that grows": (
        "found = []\n"
        "        for kind in c.kinds:\n"
        "            found.append(Block(c, wide=kind == 'full'))\n"
        "        self.blocks = nn.ModuleList(found)"
    ),
    "a local container that grows": (
        "found = nn.ModuleList()\n        found.append(Block(c))\n        self.blocks = found"
    ),
    "a dict of modules": "self.by = nn.ModuleDict({k: nn.Linear(v, 2) for k, v in c.sizes.items()})",
    "a sequence": "self.s = nn.Sequential(nn.Linear(c.width, 5), nn.SiLU(), nn.Linear(5, c.width))",
    "convolutions and norms": "self.c = nn.Conv1d(4, 8, 3, groups=2); self.n = nn.LayerNorm(c.width)",
    "a condition that is known": (
        "self.x = nn.Linear(2, 3) if c.layers > 2 else None\n        if c.bias:\n            self.y = nn.Linear(4, 4)"
    ),
    "setattr and add_module": "setattr(self, 'named', nn.Linear(2, 2)); self.add_module('added', nn.Linear(3, 3))",
    "arithmetic, slices and strings": (
        "half = c.hidden // 2 - 1\n"
        "        self.p = nn.Linear(half, len(c.kinds[1:]))\n"
        "        self.add_module(f'layer_{c.layers}', nn.Linear(2, max(c.width, 3)))"
    ),
    "an augmented value": "n = 1\n        n += c.layers\n        self.q = nn.Linear(n, n)",
    "a copied config that is changed": (
        "other = copy.deepcopy(c)\n        other.width = 30\n        self.o = Block(other)\n        self.m = Block(c)"
    ),
    "getattr with a default": "self.g = nn.Linear(getattr(c, 'width', 1), getattr(c, 'absent', 9))",
    "a class of torch as an argument": (
        "for name, norm in {'a': nn.LayerNorm, 'b': nn.BatchNorm1d}.items():\n"
        "            self.add_module(name, norm(c.width))"
    ),
    "a loop that is left": (
        "for i in range(9):\n"
        "            if i == 1:\n                continue\n"
        "            if i > c.layers:\n                break\n"
        "            self.add_module(f'l{i:02d}', nn.Linear(i + 1, 2))"
    ),
    "an item of a list that changes": (
        "kinds = list(c.kinds)\n        kinds[0] = 'slim'\n"
        "        self.k = nn.ModuleList([Block(c, wide=kind == 'full') for kind in kinds])"
    ),
    "a buffer of a local module": "b = Block(c)\n        b.register_buffer('z', torch.zeros(5))\n        self.b = b",
    "a tuple of values": "one, two = c.width, c.layers\n        self.t = nn.Linear(one, two)",
}


class Plain(Config):
    """A config of plain values."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.values = dict(values)

    @property
    def given(self) -> Mapping[str, Any]:
        return self.values

    @property
    def model_type(self) -> str:
        return "plain"

    def model_class(self, source: SourceFile, name: str) -> ClassRef | None:
        found = source.resolve_class(name)
        return ClassRef(*found) if found else None

    def get(self, name: str) -> Any:
        return self.values.get(name, UNKNOWN)

    def has(self, name: str) -> bool:
        return name in self.values

    def set(self, name: str, value: Any, certain: bool) -> None:
        self.values[name] = value if certain else UNKNOWN

    def make(self, cls: ClassRef, values: dict[str, Any]) -> Config | None:
        return None

    def copy(self) -> "Plain":
        return Plain(self.values)


@pytest.fixture
def library(tmp_path: Path) -> Library:
    """An empty package to write modules into."""
    root = tmp_path / "little"
    root.mkdir()
    (root / "__init__.py").write_text('__version__ = "1"\n', encoding="utf-8")
    return Library("little", root)


def read(library: Library, name: str, text: str) -> SourceFile:
    (library.root / f"{name}.py").write_text(text, encoding="utf-8")
    return read_source(library, library.root / f"{name}.py")


def interpreted(source: SourceFile, name: str = "Model", values: Mapping[str, Any] = VALUES) -> Module:
    return Interpreter(source).build(name, [Plain(values)], {})


def shapes(module: Module, prefix: str = "") -> dict[str, tuple[int | None, ...] | None]:
    found: dict[str, tuple[int | None, ...] | None] = {}
    for name, alternatives in module.attributes.items():
        for value in alternatives:
            if isinstance(value, Tensor):
                found[f"{prefix}{name}"] = value.shape
            elif isinstance(value, Module):
                found |= shapes(value, f"{prefix}{name}.")
    return found


def built(source: SourceFile) -> dict[str, tuple[int, ...]]:
    """What torch makes of the same file."""
    spec = importlib.util.spec_from_file_location("little_model", source.path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    model = module.Model(SimpleNamespace(**VALUES))
    return {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}


@pytest.mark.parametrize("name", CASES)
def test_it_reads_what_torch_builds(library: Library, name: str) -> None:
    body = f"class Model(nn.Module):\n    def __init__(self, c):\n        super().__init__()\n        {CASES[name]}\n"
    source = read(library, "model", f"{HEAD}\n\n{body}")
    found = shapes(interpreted(source))
    assert found == built(source)
    assert found


def test_constructors_of_bases_and_methods_that_they_call_are_followed(library: Library) -> None:
    child = (
        "class Model(Base):\n    def __init__(self, config):\n        super().__init__(config)\n"
        "        self.head = nn.Linear(config.width, 7)\n\n"
        "    def build(self):\n        super().build()\n        self.more = nn.Linear(5, 6)\n"
    )
    source = read(library, "model", f"{HEAD}\n\n{child}")
    assert {"first.weight", "head.weight", "made.weight", "more.weight"} <= shapes(interpreted(source)).keys()


def test_imports_within_the_library_are_followed(library: Library) -> None:
    read(library, "parts", HEAD)
    text = (
        "from torch import nn\nfrom .parts import Block as Piece\n\n\n"
        "class Model(nn.Module):\n    def __init__(self, c):\n        super().__init__()\n        self.p = Piece(c)\n"
    )
    assert shapes(interpreted(read(library, "model", text))) == {"p.up.weight": (20, 12)}


def test_what_cannot_be_told_is_an_alternative_and_never_a_guess(library: Library) -> None:
    text = (
        f"{HEAD}\n\nclass Model(nn.Module):\n    def __init__(self, c):\n        super().__init__()\n"
        "        if c.absent:\n            self.a = nn.Linear(2, 3)\n"
        "        else:\n            self.a = nn.Linear(4, 5)\n"
        "        self.b = nn.Linear(c.nowhere, 3)\n        self.c = elsewhere.Thing(c)\n"
    )
    model = interpreted(read(library, "model", text))
    assert "a" in model.uncertain
    assert len(model.attributes["a"]) == 2
    assert shapes(model)["b.weight"] == (3, None)
    assert model.unresolved == {"c": "elsewhere.Thing(c)"}


def test_a_long_loop_ends(library: Library) -> None:
    text = (
        f"{HEAD}\n\nclass Model(nn.Module):\n    def __init__(self, c):\n        super().__init__()\n"
        "        self.blocks = nn.ModuleList([Block(c) for _ in range(10**9)])\n"
    )
    assert len(interpreted(read(library, "model", text)).attributes["blocks"][0].attributes) < 10_000


def test_a_class_that_is_not_there_is_named(library: Library) -> None:
    with pytest.raises(BadInput, match=r"model\.py has no class Absent"):
        interpreted(read(library, "model", HEAD), "Absent")


def test_nothing_of_the_file_is_run(library: Library, tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    text = f"open({str(mark)!r}, 'w').close()\n{HEAD}\n\nclass Model(Base):\n    pass\n"
    interpreted(read(library, "model", text))
    assert not mark.exists()
    assert "little" not in sys.modules
