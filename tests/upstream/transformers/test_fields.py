"""The fields of a config that code reads, and what for."""

import ast

from omni_kit.pysource.eval import UNKNOWN
from omni_kit.upstream.transformers.fields import Use, fields_read


def read(code: str) -> dict[str, set[Use]]:
    return {name: one.uses for name, one in fields_read([ast.parse(code)]).fields.items()}


def test_direct_reads_defaults_and_nested_configs() -> None:
    found = fields_read([ast.parse(
        'a = config.a + self.config.b\nc = getattr(text_config, "c", 3)\nd = getattr(config, "d", None)\n'
        'hasattr(config, "e")\nother.f\nconfig.get_text_config()\nself.g\n'
    )]).fields  # fmt: skip
    assert found.keys() == {"a", "b", "c", "d", "e"}
    assert (found["c"].default, found["d"].default, found["a"].default) == (3, None, UNKNOWN)
    assert found["d"].uses == {Use.optional}


def test_uses() -> None:
    found = fields_read([ast.parse(
        "def f(config, layer_idx):\n"
        "    act = ACT2FN[config.act]\n"
        "    if layer_idx in config.listed or (layer_idx + 1) % config.step == 0: pass\n"
        "    if layer_idx >= config.first and config.width % config.heads == 0: pass\n"
        "    kind = config.kinds[layer_idx]\n"
        "    if config.mode == 'fast' or config.mode in ('slow', 'even'): pass\n"
        "    if config.rank is None: pass\n"
    )]).fields  # fmt: skip
    assert (found["act"].uses, found["act"].tables) == ({Use.looked_up}, {"ACT2FN"})
    assert found["listed"].uses == {Use.contains}
    assert found["step"].uses == {Use.stride}
    assert found["first"].uses == {Use.threshold}
    assert Use.stride not in found["heads"].uses
    assert found["kinds"].uses == {Use.by_layer}
    assert found["mode"].constants == {"fast", "slow", "even"}
    assert found["rank"].uses == {Use.optional}


def test_other_names_are_followed_within_a_class_and_a_function() -> None:
    found = read(
        "class A:\n    def __init__(self, config):\n        self.scale = config.by_depth\n        rank = config.rank\n"
        "        if rank is None: pass\n"
        "    def forward(self, x):\n        if self.scale: pass\n"
        "class B:\n    def forward(self, x):\n        if self.scale in x: pass\n"
    )
    assert found == {"by_depth": {Use.switch}, "rank": {Use.optional}}


def test_fields_that_meet_in_a_condition() -> None:
    pairs = fields_read([ast.parse(
        "if config.a and config.b: pass\nif config.c:\n    if config.d: pass\n"
        "x = config.window if config.use_window else None\ny = config.e\n"
    )]).pairs  # fmt: skip
    assert pairs == {("a", "b"), ("c", "d"), ("use_window", "window")}


def test_a_config_class_reads_itself() -> None:
    found = read("class ToyConfig(Base):\n    def check(self):\n        if self.heads: self.validate()\n")
    assert found == {"heads": {Use.switch}}
