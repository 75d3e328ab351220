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


def cut(place: Path, halves: str = "none, full", joined: str = "other, pooled", pooled: str = "pooled") -> SlicedLoop:
    text = PIPELINE.replace("{halves}", halves).replace("{joined}", joined).replace("{pooled}", pooled)
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
