"""einops written out with torch's methods, compared with einops itself."""

import math
import random

import einops
import libcst as cst
import pytest
import torch

from omni_kit.pysource.eval import Unsupported
from omni_kit.targets.diffusers.porting.rearranging import written_out

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
