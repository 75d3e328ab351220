"""einops written out with torch's methods, compared with einops itself."""

import math
import random
from pathlib import Path

import einops
import libcst as cst
import pytest
import torch

from omni_kit.pysource.eval import Unsupported
from omni_kit.targets.diffusers.porting.rearranging import written_out
from tests.conftest import first
from tests.targets.diffusers.porting.small_models import ASKED, HEAD, SPLIT, attention, ported

SIZES = {"a": 2, "b": 3, "c": 4, "d": 5}


def _side(names: list[str], draw: random.Random) -> list[list[str]]:
    """Return groups of axes, with axes of one among them."""
    groups = list[list[str]]()
    while names:
        count = draw.choice([1, 1, 1, 2, 3])
        groups.append(names[:count])
        names = names[count:]
    for _ in range(draw.choice([0, 0, 1, 2])):
        groups.insert(draw.randint(0, len(groups)), ["1"])
    return groups


def _text(groups: list[list[str]]) -> str:
    return " ".join(group[0] if len(group) == 1 else f"({' '.join(group)})" for group in groups)


@pytest.mark.parametrize("dots", ["{}", "... {}", "{} ..."])
@pytest.mark.parametrize("name", ["rearrange", "repeat"])
def test_patterns_mean_what_einops_makes_of_them(name: str, dots: str) -> None:
    draw = random.Random(1)
    compared = 0
    for _ in range(120):
        names = list(SIZES)[: draw.randint(0, 4)]
        left, more = _side(names, draw), dict[str, int]()
        order = draw.sample(names, len(names))
        if name == "repeat":
            more = {"x": draw.choice([2, 3])}
            order.insert(draw.randint(0, len(order)), "x")
        given = {one: SIZES[one] for group in left for one in group[1:]} | more
        pattern = f"{dots.format(_text(left))} -> {dots.format(_text(_side(order, draw)))}"
        inner = [[SIZES.get(one, 1) for one in group] for group in left]
        own = [math.prod(group) for group in inner]
        others = [] if dots == "{}" else draw.choice([[], [6], [6, 7]])
        tensor = torch.randn([*own, *others] if dots.startswith("{}") else [*others, *own])
        sizes = "".join(f", {one}={size}" for one, size in given.items())
        call = cst.parse_expression(f"{name}(tensor, {pattern.strip()!r}{sizes})")
        assert isinstance(call, cst.Call)
        try:
            text = cst.Module([]).code_for_node(written_out(call, name))
        except Unsupported:  # a permutation next to axes without names
            continue
        compared += 1
        meant = getattr(einops, name)(tensor, pattern.strip(), **given)
        assert torch.equal(eval(text, {"tensor": tensor}), meant), (pattern, text)
    assert compared > 60


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


def test_what_cannot_be_written_out_is_said(tmp_path: Path) -> None:
    text = attention(SPLIT, f'x = rearrange(x, "b ... d -> b (...) d")\n{ASKED}')
    found = ported(tmp_path, text, HEAD + "from einops import rearrange\n")
    marked = found.text.splitlines()
    assert {what.split(" (")[0] for _, what in found.todo} >= {"write rearrange out with torch's own methods"}
    assert all("TODO(omni-kit)" in marked[line - 1] for line, _ in found.todo)
