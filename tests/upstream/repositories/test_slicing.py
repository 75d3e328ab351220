"""A loop cut out of a pipeline: its model, its scheduler and its guidance by other names, and nothing else of it."""

import ast
from pathlib import Path

import pytest

from omni_kit.pysource.eval import Unsupported
from omni_kit.upstream.repositories.reference import find_reference
from omni_kit.upstream.repositories.sampler_step.slicing import SlicedLoop, sliced
from omni_kit.upstream.repositories.sampling import samplings_of

PIPELINE = """\
import torch
from diffusers import DiffusionPipeline, FlowMatchEulerDiscreteScheduler
from torch import nn


class Net(nn.Module):
    def forward(self, x, t, context, pooled=None, fast=False):
        return x


class NetPipeline(DiffusionPipeline):
    def __init__(self, net: Net, scheduler: FlowMatchEulerDiscreteScheduler):
        self.register_modules(net=net, scheduler=scheduler)

    @property
    def guidance_scale(self):
        return self._guidance_scale

    @property
    def do_classifier_free_guidance(self):
        return self._guidance_scale > 1

    def __call__(self, prompt, num_inference_steps=30, guidance_scale=5.0, latents=None, callback=None, fast=True):
        self._guidance_scale = guidance_scale
        context, empty, pooled, other = self.encode(prompt)
        if self.do_classifier_free_guidance:
            context = torch.cat([empty, context])
            pooled = torch.cat([{joined}])
        self.scheduler.set_timesteps(num_inference_steps)
        latents = self.prepare_latents(latents)
        with self.progress_bar(total=num_inference_steps) as bar:
            for i, t in enumerate(self.scheduler.timesteps):
                if self.interrupt:
                    continue
                both = torch.cat([latents] * 2) if self.do_classifier_free_guidance else latents
                answer = self.net(both, t.expand(both.shape[0]), context, pooled={pooled}, fast=fast)[0]
                if self.do_classifier_free_guidance:
                    {halves} = answer.chunk(2)
                    answer = none + self.guidance_scale * (full - none)
                latents = self.scheduler.step(answer, t, latents, return_dict=False)[0]
                if callback is not None:
                    latents = callback(self, i, t, latents)
                bar.update()
        return self.decode(latents)
"""


def cut(
    place: Path,
    halves: str = "none, full",
    joined: str = "other, pooled",
    pooled: str = "pooled",
    *edits: tuple[str, str],
) -> SlicedLoop:
    text = PIPELINE.replace("{halves}", halves).replace("{joined}", joined).replace("{pooled}", pooled)
    for old, new in edits:
        assert old in text
        text = text.replace(old, new)
    (place / "net.py").write_text(text, encoding="utf-8")
    reference = find_reference(f"{place / 'net.py'}::Net")
    (found,) = samplings_of(reference)
    return sliced(found, list(reference.forward), "x", "t", "context")


def test_a_pipelines_loop_stands_by_itself(tmp_path: Path) -> None:
    found = cut(tmp_path)
    assert (found.scheduler, dict(found.conditions), dict(found.constants)) == (
        "self.scheduler", {"pooled": True}, {"fast": True}
    )  # fmt: skip
    lines = found.sampling.script.splitlines()
    assert lines[0] == "def sample(model, noise, steps, text, against, scale, pooled=None, negative_pooled=None):"
    assert "self" not in found.sampling.script
    assert "callback" not in found.sampling.script
    assert any("context=torch.cat([against, text]) if guided else text" in line for line in lines)
    assert any("torch.cat([negative_pooled, pooled]) if guided else pooled" in line for line in lines)


def test_halves_are_told_apart_by_the_formula_of_guidance(tmp_path: Path) -> None:
    assert "torch.cat([text, against])" in cut(tmp_path, halves="full, none").sampling.script


def test_a_condition_that_is_only_repeated_has_no_other(tmp_path: Path) -> None:
    found = cut(tmp_path, joined="pooled, pooled")
    assert dict(found.conditions) == {"pooled": False}
    assert "torch.cat([pooled, pooled]) if guided else pooled" in found.sampling.script


def test_the_loop_that_is_worked_out_has_plain_numbers_for_its_scheduler(tmp_path: Path) -> None:
    text = ast.unparse(cut(tmp_path).sampling.made)
    assert "enumerate([900.0, 500.0, 100.0])" in text
    assert "latents = [latents + answer * t][0]" in text


@pytest.mark.parametrize(("change", "said"), [
    ({"pooled": "pooled * t"}, "makes pooled of t in each step"),
    ({"halves": "one, two"}, "does not say which of full and none"),
])  # fmt: skip
def test_what_cannot_stand_by_itself_is_said(change: dict[str, str], said: str, tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match=said):
        cut(tmp_path, **change)


def edited(place: Path, *edits: tuple[str, str], pooled: str = "pooled") -> SlicedLoop:
    own = place / f"{len([*place.iterdir()])}"  # a file is read once
    own.mkdir()
    return cut(own, "none, full", "other, pooled", pooled, *edits)


STEP = "                both = torch.cat([latents] * 2)"
ASK = "t.expand(both.shape[0])"


def test_what_a_step_makes_of_latents_alone_is_an_expression_in_them(tmp_path: Path) -> None:
    found = edited(tmp_path, pooled="torch.ones_like(both)[:, 0]")
    assert dict(found.derived) == {"pooled": "torch.ones_like(latents)[:, 0]"}
    assert not found.conditions
    with pytest.raises(Unsupported, match="makes pooled of"):
        edited(tmp_path, pooled="torch.ones_like(both)[:, 0] * t")


@pytest.mark.parametrize(("default", "fast"), [("None", {"fast": True}), ("2", {})])
def test_a_branch_that_is_never_taken_changes_no_argument(default: str, fast: dict[str, bool], tmp_path: Path) -> None:
    branch = "                if extra is not None:\n                    extra, fast = extra.to(t), self.quick(extra)\n"
    change = ("fast=True):", f"fast=True, extra={default}):"), (STEP, branch + STEP)
    if fast:
        assert dict(edited(tmp_path, *change).constants) == fast
    else:
        with pytest.raises(Unsupported, match="makes fast of"):
            edited(tmp_path, *change)


TENSOR = """\
                now = t
                if not torch.is_tensor(now):
                    now = torch.tensor([now], dtype=torch.float64)
                elif len(now.shape) == 0:
                    now = now[None].to(both.device)
                now = now.expand(both.shape[0])
                answer = self.net"""
ANSWER = "                answer = self.net"


def test_a_timestep_of_a_scheduler_is_a_tensor_without_axes(tmp_path: Path) -> None:
    found = edited(tmp_path, (ANSWER, TENSOR), (ASK, "now"))
    assert "model(x=both, t=t," in ast.unparse(found.sampling.made)


def test_an_index_is_no_timestep(tmp_path: Path) -> None:
    found = edited(tmp_path, (ANSWER, TENSOR.replace("now = t\n", "now = i\n")), (ASK, "t"))
    assert "model(x=both, t=t," in ast.unparse(found.sampling.made)


def test_a_cast_of_the_answer_is_no_step_of_its_own(tmp_path: Path) -> None:
    cast = "                answer = answer.to(dtype=torch.float32)\n                if self.do_classifier"
    found = edited(tmp_path, ("                if self.do_classifier", cast))
    assert "torch.float32" in found.sampling.script
    assert "torch.float32" not in ast.unparse(found.sampling.made)


@pytest.mark.parametrize("bar", ["tqdm", "progress_wrap", "self.progress_bar"])
def test_a_progress_bar_by_any_name_is_left_out(bar: str, tmp_path: Path) -> None:
    found = edited(tmp_path, ("enumerate(self.scheduler.timesteps)", f"{bar}(enumerate(self.scheduler.timesteps))"))
    assert "in enumerate(scheduler.timesteps)" in found.sampling.script


def test_sigmas_of_a_branch_that_is_never_taken_are_not_passed(tmp_path: Path) -> None:
    plain = "self.scheduler.set_timesteps(num_inference_steps)"
    passed = "self.scheduler.set_timesteps(sigmas=self.own)"
    other = f"if solver == 'one':\n            {plain}\n        else:\n            {passed}"
    change = ("fast=True):", "fast=True, solver='one'):"), (plain, other)
    assert edited(tmp_path, *change).sigmas == ""
    with pytest.raises(Unsupported, match="sigmas"):
        edited(tmp_path, ("fast=True):", "fast=True, solver='two'):"), (plain, other))


SCRIPT = """\
import torch
from torch import nn


class Net(nn.Module):
    def forward(self, x, t, context):
        return {"x": x}


def denoise(parts, scheduler, steps, guidance_scale):
    scheduler.set_timesteps(steps)
    latents = torch.randn(1, 4)
    for t in scheduler.timesteps:
        answer = parts.net(x=latents, t=t.repeat(len(latents)), context=parts.words)["x"]
        {step}
    return latents


def loss(parts, latents, steps):
    total = 0.0
    for t in range(steps):
        total = total + 0.5 * parts.net(latents, t, total)
    return total
"""


@pytest.mark.parametrize(("step", "functions"), [
    ("latents = scheduler.step(answer, t, latents, return_dict=False)[0]", ["denoise"]),
    ("latents = scheduler.mixed(answer, t, latents)", ["loss"]),
    ("parts.lr_scheduler.step()", ["loss"]),
])  # fmt: skip
def test_a_loop_that_steps_a_scheduler_samples(step: str, functions: list[str], tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(SCRIPT.replace("{step}", step), encoding="utf-8")
    found = samplings_of(find_reference(f"{tmp_path / 'net.py'}::Net"))
    assert [one.function for one in found] == functions


def test_members_under_other_names_are_followed(tmp_path: Path) -> None:
    found = edited(
        tmp_path, ("        self._guidance_scale = g", "        net = self.net\n        self._guidance_scale = g"),
        ("self.net(both", "net(both"),
    )  # fmt: skip
    assert found.scheduler == "self.scheduler"
    assert "model(x=both" in found.sampling.script


FLOW = """\
import torch
from torch import nn


class Net(nn.Module):
    def forward(self, x, t, mu):
        return x


class Flow:
    def __init__(self, net: Net):
        self.net = net

    def sample(self, mu, n_timesteps, warmth=1.0):
        z = torch.randn_like(mu) * warmth
        span = torch.linspace(0, 1, n_timesteps + 1, device=mu.device)
        return self.solve(z, span=span, mu=mu)

    def solve(self, x, span, mu):
        t, _, dt = span[0], span[-1], span[1] - span[0]
        path = []
        for step in range(1, len(span)):
            change = self.net(x, t, mu)
            x = x + dt * change
            t = t + dt
            path.append(x)
            if step < len(span) - 1:
                dt = span[step + 1] - t
        return path[-1]
"""


def flow(place: Path, *edits: tuple[str, str]) -> SlicedLoop:
    place = place / f"{len([*place.iterdir()])}"
    place.mkdir()
    text = FLOW
    for old, new in edits:
        assert old in text
        text = text.replace(old, new)
    (place / "net.py").write_text(text, encoding="utf-8")
    reference = find_reference(f"{place / 'net.py'}::Net")
    return sliced(samplings_of(reference)[0], list(reference.forward), "x", "t", "mu")


def test_levels_that_a_method_makes_for_another_are_made_of_the_steps(tmp_path: Path) -> None:
    lines = [line.strip() for line in flow(tmp_path).sampling.script.splitlines()]
    assert "span = torch.linspace(0, 1, steps + 1)" in lines
    assert {"t = t + dt", "dt = span[step + 1] - t"} <= {*lines}  # what the next step needs stays
    assert "path" not in " ".join(lines)


@pytest.mark.parametrize(("formula", "weight"), [
    ("(1 + guidance_scale) * full - guidance_scale * none", "scale - 1"),
    ("full + guidance_scale * (full - none)", "scale - 1"),
    ("none + guidance_scale * (full - none)", "scale"),
    ("guidance_scale * full + (1 - guidance_scale) * none", "scale"),
])  # fmt: skip
def test_a_weight_of_guidance_is_a_scale_less_one(formula: str, weight: str, tmp_path: Path) -> None:
    found = edited(
        tmp_path, ("self.guidance_scale * (full - none)", "@"), ("none + @", formula),
    )  # fmt: skip
    guided = next(line for line in found.sampling.script.splitlines() if "full" in line and "scale" in line)
    assert (f"({weight})" in guided) is (weight != "scale")
    assert "torch.cat([against, text])" in found.sampling.script
    assert found.guides


@pytest.mark.parametrize(("change", "forms"), [
    ("context = context.unsqueeze(1)", {"context": ".unsqueeze(1)"}),
    ("words = context.unsqueeze(1)", {}),
])  # fmt: skip
def test_an_axis_more_of_a_prompt_is_given_to_every_prompt(change: str, forms: dict[str, str], tmp_path: Path) -> None:
    branch = f"                if context.ndim == 3:\n                    {change}\n"
    found = edited(tmp_path, (STEP, branch + STEP))
    assert dict(found.forms) == forms
    assert ("if guided else text).unsqueeze(1)" in found.sampling.script) is bool(forms)


def test_levels_that_are_made_of_more_than_the_steps_are_not_known(tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match="reads span"):
        flow(tmp_path, ("torch.linspace(0, 1, n_timesteps + 1", "torch.linspace(0, warmth, n_timesteps + 1"))
