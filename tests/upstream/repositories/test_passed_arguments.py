"""Arguments of a constructor, followed into the constructors of classes that it passes them to."""

from pathlib import Path

import pytest

from omni_kit.pysource.classes import ClassRef
from omni_kit.upstream.repositories.passed_arguments import allowed_values, counted_with, named_classes, required_keys
from omni_kit.upstream.repositories.reference import find_reference

MODEL = """
from torch import nn


class Inner(nn.Module):
    def __init__(self, width, act="GELU", **rest):
        super().__init__()
        {inner}


class Net(nn.Module):
    def __init__(self, speakers=None, block_act=None, width=8, **kwargs):
        super().__init__()
        {outer}

    def forward(self, x, t):
        return x
"""
PASSES = "self.inner = Inner(width, act=block_act, **kwargs)"


def written(place: Path, outer: str, inner: str = "pass") -> ClassRef:
    (place / "model.py").write_text(MODEL.format(outer=outer, inner=inner))
    return find_reference(f"{place}/model.py::Net").cls


@pytest.mark.parametrize(("outer", "inner", "found"), [
    ("self.many = speakers > 1", "pass", {"speakers"}),
    ("self.wide = Inner(speakers)", "self.twice = width * 2", {"speakers"}),
    ("self.many = speakers is not None", "pass", set()),
    ("self.many = Inner(8)", "self.twice = width * 2", set()),
])  # fmt: skip
def test_an_argument_is_counted_with_where_it_arrives(tmp_path: Path, outer: str, inner: str, found: set[str]) -> None:
    assert counted_with(written(tmp_path, outer, inner)) == found


CHAIN = "if act == 'a': pass\n        elif act in ('b', 'c'): pass\n        else: {last}"


@pytest.mark.parametrize(("inner", "found"), [
    ("assert act in ['GELU', 'GELU2']", ["GELU", "GELU2"]),
    ("assert width > 2 and act == 'GELU'", ["GELU"]),
    ("if act not in ('a', 'b'): raise ValueError(act)", ["a", "b"]),
    (CHAIN.format(last="raise NotImplementedError"), ["a", "b", "c"]),
    (CHAIN.format(last="pass"), None),
    ("if act in ('a', 'b'): raise ValueError(act)", None),
    ("assert act in [None, 'GELU']", None),
])  # fmt: skip
def test_the_texts_that_an_argument_may_be_are_read(tmp_path: Path, inner: str, found: list[str] | None) -> None:
    assert allowed_values(written(tmp_path, PASSES, inner)).get("block_act") == found


@pytest.mark.parametrize(("outer", "inner", "found"), [
    (PASSES, "self.norm = rest['norm']", {"norm": True}),
    (PASSES, "if 'norm' in rest.keys(): self.norm = rest['norm']", {"norm": False}),
    (PASSES.replace("act=", "norm="), "self.norm = rest['norm']", {}),
    ("self.inner = Inner(width)", "self.norm = rest['norm']", {}),
    (PASSES, "self.norm = rest.get('norm', 1)", {}),
])  # fmt: skip
def test_keys_of_a_mapping_are_read_where_it_is_passed_on(
    tmp_path: Path, outer: str, inner: str, found: dict[str, bool]
) -> None:
    assert required_keys(written(tmp_path, outer, inner), "kwargs") == found


MAKES = """
import importlib


def get_obj(name):
    module, name = name.rsplit(".", 1)
    return getattr(importlib.import_module(module), name)


def instantiate(config, act="GELU"):
    return get_obj(config["target"])(**config["params"], act=act)


def scaled(config):
    return config * 2
"""


@pytest.mark.parametrize(("outer", "found"), [
    ("self.inner = instantiate(block_act)", ["block_act"]),
    ("self.inner = instantiate({'target': 'torch.nn.SiLU'}, block_act)", []),
    ("self.inner = scaled(width)", []),
])  # fmt: skip
def test_an_argument_may_name_a_class(tmp_path: Path, outer: str, found: list[str]) -> None:
    (tmp_path / "model.py").write_text(MAKES + MODEL.format(outer=outer, inner="pass"))
    assert named_classes(find_reference(f"{tmp_path}/model.py::Net").cls) == found
