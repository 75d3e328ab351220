"""The pipelines of authors whose methods step with a scheduler: what a run with stand-ins shows."""

from pathlib import Path

import pytest
import torch
from diffusers import FlowMatchEulerDiscreteScheduler
from torch import nn

from omni_kit.targets.diffusers.scheduling.authors_methods import Stood, method_along
from omni_kit.targets.references.authors_methods import sampled
from omni_kit.upstream.repositories.reference import find_reference

NET = """import torch
from diffusers import DDIMScheduler, FlowMatchEulerDiscreteScheduler
from torch import nn


class Net(nn.Module):
    def __init__(self, channels=4, width=16):
        super().__init__()
        self.inner = nn.Linear(channels, width)

    def forward(self, x, t, context, length=None, scale=1.0):
        return x * t.reshape(-1, 1, 1, 1)
"""
PIPELINE = """

class Pipeline:
    def __init__(self, model, vae, encoder, scheduler: FlowMatchEulerDiscreteScheduler, stride=8):
        self.model, self.vae, self.encoder, self.scheduler, self.stride = model, vae, encoder, scheduler, stride

    def encode_prompt(self, prompt, negative):
        return self.encoder(prompt).hidden[-2], self.encoder(negative).hidden[-2]

    @property
    def guides(self):
        return self._scale > 1

    def __call__(self, prompt, negative="", height=None, num_inference_steps=30, guidance_scale=4.0, device="cuda"):
        height = height or self.vae.config.size * self.stride
        length = self.vae.channels * (height // self.stride)
        self._scale = guidance_scale
        embeds, against = self.encode_prompt(prompt, negative)
        if self.guides:
            embeds = torch.cat([against, embeds])
        latents = torch.randn((1, self.model.channels, height // 8, height // 8), device=device)
        self.scheduler.set_timesteps(num_inference_steps, device=device)
        for i, t in enumerate(self.scheduler.timesteps):
            if self.interrupt:
                continue
            asked = BOTH if self.guides else latents
            answer = MODEL(asked, t.expand(len(asked)), embeds, length=length)
            if self.guides:
                second, first = answer.chunk(2)
                answer = second + WEIGHT * (first - second)
            latents = self.scheduler.step(SIGN answer, t, latents, return_dict=False)[0]
        return self.vae.decode(latents / self.vae.config.scaling)
"""
USUAL = {"BOTH": "torch.cat([latents] * 2)", "MODEL": "self.model", "WEIGHT": "guidance_scale", "SIGN": ""}
LISTED = """

class Video:
    def generate(self, text, sampling_steps=40, guide_scale=5.0, shift=3.0, seed=-1):
        shape = (self.vae.dim, 3, self.size // self.stride)
        context, against = self.encoder([text], self.device), self.encoder([self.sample_negative], self.device)
        latents = [torch.randn(shape[0], shape[1], shape[2], device=self.device)]
        scheduler = FlowMatchEulerDiscreteScheduler(num_train_timesteps=1000, shift=2.0)
        scheduler.set_timesteps(sampling_steps, device=self.device)
        for _, t in enumerate(scheduler.timesteps):
            t = torch.stack([t])
            second = self.model(latents, t=t, context=against)[0]
            first = self.model(latents, t=t, context=context)[0]
            answer = second + guide_scale * (first - second)
            step = scheduler.step(answer.unsqueeze(0), t[0], latents[0].unsqueeze(0), return_dict=False)[0]
            latents = [step.squeeze(0)]
        return self.vae.decode(latents)
"""
NAMES = {"x": "hidden_states", "t": "timestep", "context": "encoder_hidden_states"}


def stood(place: Path, text: str, name: str = "net", **changed: str) -> Stood:
    file = place / f"{name}.py"
    for old, new in {**USUAL, **changed}.items():
        text = text.replace(old, new)
    file.write_text(NET + text, encoding="utf-8")
    return method_along(find_reference(f"{file}::Net"), NAMES, "context")


def told(found: Stood) -> dict[str, object]:
    """Return the method as a comparison describes it."""
    assert found.process is not None
    names: dict[str, object] = {}
    exec("\n".join(found.process.held), names)
    spec = names["spec"]
    assert isinstance(spec, dict)
    return spec


def test_a_pipeline_with_both_prompts_in_one_batch(tmp_path: Path) -> None:
    found = stood(tmp_path, PIPELINE, SIGN="-")
    one = found.stepping.installed
    assert (one.name, one.config, one.whole, one.negated) == (FlowMatchEulerDiscreteScheduler.__name__, {}, True, True)
    assert (found.conditions, found.guides) == (("length",), True)
    spec = told(found)
    assert (spec["owner"], spec["method"], spec["first"], spec["alone"]) == ("Pipeline", "__call__", False, True)
    assert found.process is not None
    assert found.process.todo[0].startswith("set the scheduler as the authors do: Pipeline.__call__ is given any")


def test_a_method_with_a_list_of_one_sample_and_a_scheduler_of_its_own(tmp_path: Path) -> None:
    found = stood(tmp_path, LISTED)
    one = found.stepping.installed
    assert (one.name, one.config, one.by_count) == (FlowMatchEulerDiscreteScheduler.__name__, {"shift": 2.0}, True)
    assert (found.conditions, found.guides) == ((), True)
    spec = told(found)
    assert (spec["first"], spec["alone"]) == (False, False)
    assert found.process is not None
    assert not found.process.todo


PLAIN = """

class EulerScheduler:
    def __init__(self, steps=1000, shift=1.0):
        self.steps, self.shift = steps, shift

    def set_timesteps(self, count, device=None):
        levels = torch.linspace(1, 0, count + 1)
        self.sigmas = self.shift * levels / (1 + (self.shift - 1) * levels)
        self.timesteps = self.sigmas[:-1] * self.steps

    def step(self, answer, t, latents, return_dict=True):
        at = (self.timesteps == t).nonzero()[0]
        return (latents + (self.sigmas[at + 1] - self.sigmas[at]) * answer,)


def load():
    return {"scheduler": EulerScheduler(shift=config.get("shift", 3.0))}


def generate(model, encoder, scheduler, prompt: str | list[str], num_inference_steps=30, guidance_scale=4.0):
    prompts = [prompt] if isinstance(prompt, str) else prompt
    embeds, against = encoder(prompts), encoder([""] * len(prompts))
    latents = torch.randn((len(prompts), model.channels, 8, 8))
    scheduler.set_timesteps(num_inference_steps)
    for t in scheduler.timesteps:
        twice = guidance_scale > ABOVE
        asked = (latents.repeat(2, 1, 1, 1) if twice else latents).unsqueeze(2)
        answers = model(list(asked.unbind(0)), (1 - t / 1000).expand(len(asked)), embeds)
        answer = torch.stack([one for one in answers]).squeeze(2)
        if twice:
            first, second = answer.chunk(2)
            answer = first + guidance_scale * (first - second)
        latents = scheduler.step(-answer, t, latents, return_dict=False)[0]
    return latents
"""


@pytest.mark.parametrize(("above", "scale"), [("1", 2), ("0", 1), ("0.7", 0)])
def test_films_of_one_frame_a_plain_scheduler_and_a_scale_that_counts_from_zero(
    tmp_path: Path, above: str, scale: int
) -> None:
    found = stood(tmp_path, PLAIN, f"plain_{scale}", ABOVE=above)
    if not scale:
        assert "guides above another scale than 0 or 1" in " ".join(found.why)
        return
    one, spec = found.stepping.installed, told(found)
    assert (one.name, one.rises, found.stepping.shift) == (FlowMatchEulerDiscreteScheduler.__name__, True, 3.0)
    assert (found.lone, found.more, found.above) == (2, 1, scale) == (spec["lone"], spec["more"], spec["above"])
    assert found.guides


class InFilms(nn.Module):
    """Answers with a list of films, of one frame each."""

    def forward(self, x: torch.Tensor, t: torch.Tensor, context: torch.Tensor) -> list[torch.Tensor]:
        assert x[0].shape == (4, 1, 8, 8)
        return [torch.sin(film) * text.mean() + time for film, text, time in zip(x, context, t, strict=True)]


@pytest.mark.parametrize("scale", [1.0, 5.0])
def test_a_run_with_several_prompts_in_films_of_one_frame(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scale: float
) -> None:
    spec = told(stood(tmp_path, PLAIN, "plain_authors", ABOVE="1"))
    monkeypatch.syspath_prepend(str(tmp_path))
    noise, text, against = torch.randn(2, 4, 8, 8), torch.randn(2, 5, 6), torch.randn(2, 5, 6)
    model, latents = InFilms(), noise
    scheduler = FlowMatchEulerDiscreteScheduler(shift=3.0)
    scheduler.set_timesteps(sigmas=[1 - step / 6 for step in range(6)])
    for t in scheduler.timesteps:
        first, second = (torch.stack(model(latents.unsqueeze(2), (1 - t / 1000).expand(2), one)).squeeze(2)
                         for one in (text, against))  # fmt: skip
        latents = scheduler.step(-(second + scale * (first - second)), t, latents, return_dict=False)[0]
    torch.testing.assert_close(sampled(model, noise, 6, text, against, scale, {}, spec), latents)


class Answering(nn.Module):
    """Answers otherwise for each text."""

    def forward(self, x: torch.Tensor, t: torch.Tensor, context: torch.Tensor) -> torch.Tensor:
        return torch.sin(x) * context.mean((1, 2)).reshape(-1, 1, 1, 1) + t.reshape(-1, 1, 1, 1) / 1000


@pytest.mark.parametrize("scale", [1.0, 4.0])
def test_a_run_of_the_method_itself_is_what_a_pipeline_is_compared_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scale: float
) -> None:
    spec = told(stood(tmp_path, LISTED, "listed_authors"))
    monkeypatch.syspath_prepend(str(tmp_path))
    noise, text, against = torch.randn(2, 4, 3, 8), torch.randn(2, 5, 6), torch.randn(2, 5, 6)
    model, latents = Answering(), noise
    scheduler = FlowMatchEulerDiscreteScheduler(shift=2.0)
    scheduler.set_timesteps(6)
    for t in scheduler.timesteps:
        first, second = (model(latents, t.expand(2), one) for one in (text, against))
        latents = scheduler.step(second + scale * (first - second), t, latents, return_dict=False)[0]
    # The loop asks for three axes, and is passed the samples side by side.
    spec = {**spec, "returns": "list"}
    went = sampled(model, noise, 6, text, against, scale, {}, spec)
    torch.testing.assert_close(went, latents)


BLEND = "torch.cat([latents, latents * self.vae.mask])"
VARIES = "(1 + guidance_scale * (i + 1) / 9)"


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"WEIGHT": VARIES}, "guides by another formula than the usual one"),
        ({"WEIGHT": "first.std() * guidance_scale"}, "guides by another formula than the usual one"),
        ({"BOTH": BLEND}, "passes its model vae.mask with the latents"),
        ({"BOTH": "torch.cat([latents, 2 * latents])"}, "calls its model with latents of two kinds"),
        ({"MODEL": "(self.model if t > self.boundary else self.other)"}, "steps in another way where it compares"),
        ({"MODEL": "(self.model if i else self.other)"}, "calls several models: other, model"),
        ({"SIGN": "self.factor *"}, "steps with factor"),
        ({"t.expand(len(asked))": "t.expand(1, 9)"}, "passes its model a step for each token"),
    ],
)
def test_what_a_pipeline_cannot_repeat_is_named(tmp_path: Path, changed: dict[str, str], why: str) -> None:
    found = stood(tmp_path, PIPELINE, **changed)
    assert found.process is None
    assert why in " ".join(found.why)
