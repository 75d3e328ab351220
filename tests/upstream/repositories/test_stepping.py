"""A loop over steps, divided where it asks its model: what each part needs, and where it goes with plain numbers."""

import ast
import math
from pathlib import Path

import pytest

from omni_kit.pysource.eval import Unsupported
from omni_kit.upstream.repositories.reference import find_reference
from omni_kit.upstream.repositories.sampler_step.simulation import trace_of
from omni_kit.upstream.repositories.sampler_step.split_step import Divided
from omni_kit.upstream.repositories.sampling import samplings_of

NET = """\
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.a = nn.Linear(dim, dim)

    def forward(self, x, t, context):
        return self.a(x)


def sample(net, z, steps, context, empty, cfg=4.0):
    ts = torch.linspace(1, 0, steps + 1)
{before}    for now, after in zip(ts[:-1], ts[1:]):
{step}
    return z
"""
GUIDED = (
    "{name} = net({x}, {t}.expand(len(z)), empty)\n"
    "        {name} = {name} + cfg * (net({x}, {t}.expand(len(z)), context) - {name})"
)


def ask(name: str, x: str = "z", t: str = "now") -> str:
    return GUIDED.format(name=name, x=x, t=t)


def divided(place: Path, *step: str, before: str = "") -> Divided:
    file = place / "net.py"
    file.write_text(NET.format(before=before, step="\n".join(f"        {one}" for one in step)), encoding="utf-8")
    reference = find_reference(f"{file}::Net")
    (found,) = samplings_of(reference)
    return Divided(found, list(reference.forward), "x", "t")


def shown(body: list[ast.stmt]) -> list[str]:
    return [ast.unparse(ast.fix_missing_locations(one)) for one in body]


def test_a_plain_step_has_one_stage_and_leaves_nothing(tmp_path: Path) -> None:
    found = divided(tmp_path, ask("v"), "z = z + (after - now) * v")
    assert (found.carried, found.left, found.levels, found.factor) == ((), (), "ts", None)
    assert shown(found.stages[0].body) == ["z = z + (after - now) * v", "prev_sample = z"]
    assert [ast.unparse(one.time) for one in found.asks] == ["now"]


def test_a_midpoint_leaves_what_its_second_half_needs(tmp_path: Path) -> None:
    found = divided(
        tmp_path, ask("v"), "half = (now + after) / 2", "mid = z + (half - now) * v", ask("w", "mid", "half"),
        "z = z + (after - now) * w",
    )  # fmt: skip
    assert shown(found.stages[0].body)[-2:] == ["self._z = z", "prev_sample = mid"]
    assert (found.stages[1].kept, found.stages[1].answer) == (("z",), "w")
    assert ast.unparse(found.asks[1].time) == "(now + after) / 2"


def test_what_is_kept_in_a_list_goes_on_to_the_next_step(tmp_path: Path) -> None:
    step = (ask("v"), "past.append(v)", "z = z + (after - now) * sum(past[-2:])")
    found = divided(tmp_path, *step, before="    past = []\n")
    assert found.carried == ("past",)
    assert ast.unparse(found.begins("past")) == "[]"


def test_a_loop_is_worked_out_with_plain_numbers(tmp_path: Path) -> None:
    found = divided(
        tmp_path, ask("v"), "half = (now + after) / 2", "mid = z + (half - now) * v", ask("w", "mid", "half"),
        "z = z + (after - now) * w",
    )  # fmt: skip
    way = trace_of(found, 2, 1.0, lambda x, t: x * t, {})
    assert way is not None
    assert [time for _, time in way.calls] == [1.0, 0.75, 0.5, 0.25]
    assert math.isclose(way.ended, 0.71875 * (1 - 0.5 * 0.25 * (1 - 0.25 * 0.5)))


APART = ("u = net(z, now.expand(len(z)), empty)", "c = net(z, now.expand(len(z)), context)", "z = z + u * c")
AT_TIMES = "if now > 0.5:\n            v = net(z, now, context)\n            z = z + after * v"


@pytest.mark.parametrize(("step", "said"), [
    (("while True:\n            break", ask("v"), "z = z + v"), "has a `while`"),
    (APART, "guides differently"),
    ((AT_TIMES,), "only in some of its steps"),
    ((ask("v", t="z.mean()"), "z = z + after * v"), "of z"),
])  # fmt: skip
def test_what_is_of_another_shape_is_said(step: tuple[str, ...], said: str, tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match=said):
        divided(tmp_path, *step)
