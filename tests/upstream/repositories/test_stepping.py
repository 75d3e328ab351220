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


FLOW = """\
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.a = nn.Linear(dim, dim)

    def forward(self, x, t, context):
        return self.a(x)


class Flow:
    def __init__(self, model, normal=True):
        self.model = model

    def forward(self, x, context):
        return self.model(x, torch.rand(len(x)), context)

    def sample(self, z, context, empty=None, sample_steps=50, cfg=2.0):
        b = z.size(0)
        dt = 1.0 / sample_steps
        dt = torch.tensor([dt] * b).to(z.device).view([b, *([1] * len(z.shape[1:]))])
        images = [z]
        for i in range(sample_steps, 0, -1):
            t = i / sample_steps
            t = torch.tensor([t] * b).to(z.device)
            v = self.model(z, t, context)
            if empty is not None:
                u = self.model(z, t, empty)
                v = u + cfg * (v - u)
            z = z - dt * v
            images.append(z)
{uses}        return images
"""


def flowing(place: Path, uses: str = "") -> Divided:
    (place / "flow.py").write_text(FLOW.replace("{uses}", uses), encoding="utf-8")
    (found,) = samplings_of(find_reference(f"{place / 'flow.py'}::Net"))
    assert found.called("")[1].endswith(
        "sample(z=noise, context=text, empty=against, sample_steps=steps, cfg=scale)[-1]"
    )
    return Divided(found, ["x", "t", "context"], "x", "t")


def test_a_class_that_trains_and_samples_is_read_for_one_picture(tmp_path: Path) -> None:
    loop = flowing(tmp_path)
    assert loop.carried == ()
    way = trace_of(loop, 4, 0.8, lambda x, t: 1.0, {"cfg": 2.0})
    assert way is not None
    assert [round(t, 6) for _, t in way.calls] == [1.0, 0.75, 0.5, 0.25]
    assert math.isclose(way.ended, -0.2, abs_tol=1e-6)


def test_a_list_that_steps_read_goes_on(tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match="moves images, z"):
        flowing(tmp_path, "            z = z + 0 * images[0]\n")


OWN = """    def __init__(self, dim=8):
        super().__init__()
        self.beta = 0.5
        self.model = {made}(dim)
"""


@pytest.mark.parametrize(("made", "found"), [("Net", True), ("Other", False)])
def test_a_loop_is_known_whose_object_makes_the_model_itself(tmp_path: Path, made: str, found: bool) -> None:
    init = "    def __init__(self, model, normal=True):\n        self.model = model\n"
    text = (
        FLOW.replace(init, OWN.format(made=made))
        .replace("{uses}", "")
        .replace("z - dt * v", "(z - dt * self.beta * v) * 1")
    )
    assert "self.model = " + made in text
    other = text[text.index("class Net") : text.index("class Flow")].replace("class Net", "class Other")
    (tmp_path / "flow.py").write_text(text.replace("class Flow:", f"{other}class Flow(nn.Module):"), encoding="utf-8")
    loops = samplings_of(find_reference(f"{tmp_path / 'flow.py'}::Net"))
    assert [(one.function, one.closed, one.roles) for one in loops] == (
        [("sample", "is of Flow, which holds the model itself", {})] if found else []
    )


def test_a_loop_that_is_given_the_model_comes_before_one_whose_object_makes_it(tmp_path: Path) -> None:
    own = OWN.format(made="Net") + FLOW[FLOW.index("    def sample") :].replace("{uses}", "")
    text = NET.format(before="", step=f"        {ask('v')}\n        z = z + (after - now) * v")
    (tmp_path / "net.py").write_text(f"{text}\n\nclass Flow(nn.Module):\n{own}", encoding="utf-8")
    (found,) = samplings_of(find_reference(f"{tmp_path / 'net.py'}::Net"))
    assert (found.function, found.closed) == ("sample", "")
