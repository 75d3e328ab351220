"""Forms in which authors write their sampling: each becomes a pipeline whose whole trajectory is the authors' own."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from omni_kit.parity import run_parity
from omni_kit.parity.processes.workers import Sides
from omni_kit.scaffold import new_model
from omni_kit.targets.diffusers.porting.forward import LATENTS, TEXT, TIME
from omni_kit.targets.diffusers.scheduling.extracted_loop import cut_of
from omni_kit.upstream.repositories.reference import find_reference
from omni_kit.upstream.repositories.sampling import samplings_of
from tests.upstream.repositories.test_packing import TOKENS

from .loops import OWN_SCHEDULER, TWO_STEPS
from .test_new_model import DOVE

WITHOUT_TEXT = (
    ("t, context):", "t):"), (" + self.c_in(context).mean(1))", ")"), (", text_dim=32", ""),
    ("self.x_in, self.t_in, self.c_in =", "self.x_in, self.t_in ="), (", nn.Linear(text_dim, dim)", ""),
)  # fmt: skip
COUNTED = (("self.t_in(t[:, None])", "self.t_in(t[:, None].float() / 1000)"),)
DISTILLED = (
    ("t, context):", "t, context, ids, guidance):"),
    (
        "self.c_in(context).mean(1))",
        "self.c_in(context).mean(1) + self.c_in(ids).mean(1) + self.t_in(guidance[:, None]))",
    ),
)
PASSED = """

def bend(mu, t):
    return mu / (mu + (1 / t - 1))


def get_levels(num_steps, size, base=1.2, bent=True):
    levels = torch.linspace(1, 0, num_steps + 1)
    if bent:
        levels = bend(base + size / 100, levels)
    return levels.tolist()


def denoise(net: Dove, img, ids, txt, levels: list[float], guidance: float = 4.0, more=None):
    strength = torch.full((img.shape[0],), guidance, device=img.device, dtype=img.dtype)
    for now, after in zip(levels[:-1], levels[1:]):
        t = torch.full((img.shape[0],), now, dtype=img.dtype, device=img.device)
        given = img
        if more is not None:
            given = torch.cat((img, more), dim=1)
        out = net(x=given, t=t, context=txt, ids=ids, guidance=strength)
        if ids is not None:
            out = out[:, : img.shape[1]]
        img = img + (after - now) * out
    return img


def main(net, options, encoder):
    given = {"img": torch.randn(1, 4, 8, 8), "ids": torch.zeros(1, 7, 32), "txt": encoder(options.prompt)}
    levels = get_levels(options.num_steps, given["img"].shape[1], bent=(options.name != "plain"))
    return denoise(net, **given, levels=levels, guidance=options.guidance)
"""
INTERVAL = """

@torch.no_grad()
def sample(net, latents, y, empty, num_steps=20, second=False, cfg_scale=1.0, low=0.0, high=1.0, **unused):
    levels = torch.linspace(1, 0, num_steps + 1, dtype=torch.float64)
    x_next = latents.to(torch.float64)
    for i, (now, after) in enumerate(zip(levels[:-1], levels[1:])):
        x_cur = x_next
        if cfg_scale > 1.0 and now <= high and now >= low:
            given = torch.cat([x_cur] * 2, dim=0)
            told = torch.cat([y, empty], dim=0)
        else:
            given = x_cur
            told = y
        more = dict(context=told)
        t = torch.ones(given.size(0)).to(device=given.device, dtype=torch.float64) * now
        out = net(given.to(torch.float32), t.to(torch.float32), **more).to(torch.float64)
        if cfg_scale > 1.0 and now <= high and now >= low:
            full, none = out.chunk(2)
            out = none + cfg_scale * (full - none)
        x_next = x_cur + (after - now) * out
        if second and i < num_steps - 1:
            x_next = x_cur + (after - now) * net(x_next, t, context=told)
    return x_next
"""
TOLD_SIGMAS = """

class DovePipeline:
    def __init__(self, net, scheduler):
        self.net = net
        self.scheduler = scheduler

    @torch.inference_mode()
    def __call__(self, image, num_inference_steps=50, sigmas=None, guidance_scale=5.0, generator=None, **more):
        callback = more.pop("callback", None)
        do_classifier_free_guidance = guidance_scale >= 0 and not hasattr(self.net, "distilled")
        context = self.encode(image)
        sigmas = torch.linspace(1, 0.2, num_inference_steps).tolist() if sigmas is None else sigmas
        self.scheduler.set_timesteps(num_inference_steps, sigmas=sigmas)
        latents = self.prepare_latents(image, generator)
        for i, t in enumerate(self.scheduler.timesteps):
            given = torch.cat([latents] * 2) if do_classifier_free_guidance else latents
            step = t.expand(given.shape[0]).to(latents.dtype)
            step = step / self.scheduler.config.num_train_timesteps
            out = self.net(given, step, context)
            if do_classifier_free_guidance:
                full, none = out.chunk(2)
                out = none + guidance_scale * (full - none)
            outputs = self.scheduler.step(out, t, latents)
            latents = outputs.prev_sample
            if callback is not None:
                callback(i, t, outputs)
        return self.decode(latents)
"""
LISTED = """
import argparse

import diffusers

SAMPLERS = {
    "ddpm": {"scheduler": "DDPMScheduler", "kwargs": {"beta_schedule": "scaled_linear", "clip_sample": False}},
    "ddim": {"scheduler": "DDIMScheduler", "kwargs": {"beta_schedule": "linear", "clip_sample": False}},
}
parser = argparse.ArgumentParser()
parser.add_argument("--sampler", choices=SAMPLERS, default="ddim")


def scheduler_of(name):
    return getattr(diffusers, SAMPLERS[name]["scheduler"])(**SAMPLERS[name]["kwargs"])


class DovePipeline:
    def __init__(self, net, scheduler, engine="plain"):
        self.net = net
        self.scheduler = scheduler
        self.engine = engine

    def __call__(self, prompt, num_inference_steps=50, guidance_scale=5.0, ids=None, learns=True):
        do_classifier_free_guidance = guidance_scale > 1.0
        context, empty = self.encode(prompt)
        if do_classifier_free_guidance:
            context = torch.cat([empty, context])
        self.scheduler.set_timesteps(num_inference_steps)
        latents = self.prepare_latents(prompt)
        for i, t in enumerate(self.scheduler.timesteps):
            given = torch.cat([latents] * 2) if do_classifier_free_guidance else latents
            step = torch.tensor([t] * given.shape[0])
            if self.engine in ["plain", "fast"]:
                out = self.net(given, step, context, ids=ids[0])
            elif self.engine == "compiled":
                out = self.net(latents=given.contiguous(), step=step, words=context)
            else:
                raise ValueError(self.engine)
            if learns:
                out, _ = out.chunk(2, dim=1)
            if do_classifier_free_guidance:
                none, full = out.chunk(2)
                out = none + guidance_scale * (full - none)
            latents = self.scheduler.step(out, t, latents, return_dict=False)[0]
        return self.decode(latents)
"""
ANCESTRAL = """
import numpy as np


class Spaced:
    def __init__(self, betas, steps):
        self.times = np.linspace(0, len(betas) - 1, steps).round().astype(int)
        self.left = np.cumprod(1.0 - betas)[self.times]
        self.before = np.append(1.0, self.left[:-1])

    def p_sample_loop(self, model, shape, noise=None, clip_denoised=True, model_kwargs=None, device=None):
        x, k = noise, len(self.times)
        while k:
            k -= 1
            left, before = float(self.left[k]), float(self.before[k])
            eps = model(x, torch.full((shape[0],), int(self.times[k])), **(model_kwargs or {}))
            clean = (x - (1 - left) ** 0.5 * eps) / left**0.5
            clean = clean.clamp(-1, 1) if clip_denoised else clean
            beta = 1 - left / before
            mean = (before**0.5 * beta * clean + (1 - beta) ** 0.5 * (1 - before) * x) / (1 - left)
            x = mean + (k > 0) * beta**0.5 * torch.randn_like(x)
        return x


def create_diffusion(timestep_respacing, learn_sigma=False, diffusion_steps=1000):
    betas = np.linspace(0.1 / diffusion_steps, 20 / diffusion_steps, diffusion_steps)
    return Spaced(betas=betas, steps=int(timestep_respacing))


def main(net, z, {told}):
    diffusion = create_diffusion("50")
    return diffusion.p_sample_loop({asked}, z.shape, z, clip_denoised={clips}, model_kwargs={kwargs})
"""
GUIDING = """
    def forward_with_cfg(self, x, t, context, cfg_scale):
        half = x[: len(x) // 2]
        out = self.forward(torch.cat([half, half]), t, context)
        out = out["x"] if isinstance(out, dict) else out
        some, rest = out[:, :3], out[:, 3:]
        full, none = torch.split(some, len(some) // 2, dim=0)
        joined = none + cfg_scale * (full - none)
        return torch.cat([torch.cat([joined, joined]), rest], dim=1)
"""

FALLING = """

def create_transport(path_type="Linear", prediction="velocity"):
    return path_type, prediction


class Sampler:
    def __init__(self, transport):
        self.transport = transport

    def sample_ode(self, *, sampling_method="dopri5", num_steps=50):
        from torchdiffeq import odeint

        def sampled(x, model, **more):
            times = 1 - 0.96 * torch.linspace(0, 1, num_steps)
            return odeint(lambda t, x: model(x, t * torch.ones(len(x)), **more), x, times, method=sampling_method)

        return sampled


def main(net, z, y):
    return Sampler(create_transport()).sample_ode()(z, net.forward_with_cfg, context=y, cfg_scale=4.0)[-1]
"""

COUNTED_UP = """

class Flow:
    def __init__(self, net: Dove):
        self.net = net

    @torch.no_grad()
    def sample(self, context, n_timesteps, size=8):
        z = torch.randn(len(context), 4, size, size)
        span = torch.linspace(0, 1, n_timesteps + 1, device=context.device)
        return self.solve(z, span=span, context=context)

    @torch.no_grad()
    def solve(self, x, span, context):
        t, _, dt = span[0], span[-1], span[1] - span[0]
        path = []
        for step in range(1, len(span)):
            change = self.net(x, t.repeat(len(x)), context)
            x = x + dt * change
            t = t + dt
            path.append(x)
            if step < len(span) - 1:
                dt = span[step + 1] - t
        return path[-1]
"""

INHERITED = """

class Sampler:
    def __init__(self, sigma_min):
        self.sigma_min = sigma_min

    def step(self, model, x, now, after, cond, **more):
        raise NotImplementedError

    @torch.no_grad()
    def sample(self, model, noise, cond=None, steps=25, rescale=1.0, cfg_strength=3.0, **more):
        found = {"samples": noise, "answers": []}
        levels = (rescale * torch.linspace(1, 0, steps + 1)).tolist()
        for now, after in zip(levels[:-1], levels[1:]):
            found["samples"] = self.step(model, found["samples"], now, after, cond, **more)
        return found


class Straight(Sampler):
    def step(self, model, x, now, after, cond, **more):
        answer = model(x, torch.tensor([now] * len(x)), cond, **more)
        return x - {change} * answer
"""

ONE_HOT = (
    ("text_dim=32):", "num_classes=6, learn_sigma=False):"), ("text_dim, dim)", "num_classes, dim)"),
    ("t, context):", "t, context, feat=None):\n        found = {}"),
    ("self.c_in(context).mean(1)", "self.c_in(context)"),
    ("return self.out(x).transpose(1, 2).reshape(b, c, h, w)",
     "x = self.out(x).transpose(1, 2).reshape(b, c, h, w)\n        found['x'] = x\n        return found"),
    ("nn.Linear(dim, in_channels)", "nn.Linear(dim, in_channels * 2 if learn_sigma else in_channels)"),
)  # fmt: skip
PRECONDITIONED = """
    def forward_with_cfg(self, x, t, context, cfg_scale, feat=None):
        out = self.forward(torch.cat([x, x]), t, torch.cat([context, torch.zeros_like(context)]), feat=feat)["x"]
        full, none = out.chunk(2)
        return {"x": none + cfg_scale * (full - none)}


class Precond(nn.Module):
    def __init__(self, resolution, sigma_data=0.5, num_classes=0, **more):
        super().__init__()
        self.sigma_data, self.num_classes = sigma_data, num_classes
        self.model = Dove(num_classes=num_classes, **more)

    def forward(self, x, sigma, labels=None, cfg_scale=None, **more):
        net = self.model if cfg_scale is None else partial(self.model.forward_with_cfg, cfg_scale=cfg_scale)
        sigma = sigma.reshape(-1, 1, 1, 1)
        total = sigma**2 + self.sigma_data**2
        out = net(x / total.sqrt(), sigma.log().flatten() / 4, context=labels, **more)
        out["x"] = self.sigma_data**2 / total * x + sigma * self.sigma_data / total.sqrt() * out["x"]
        return out


def edm_sampler(
    net, latents, labels=None, cfg_scale=None, feat=None, num_steps=18, sigma_min=0.002, sigma_max=80, rho=7
):
    indices = torch.arange(num_steps)
    first, last = sigma_max ** (1 / rho), sigma_min ** (1 / rho)
    levels = (first + indices / (num_steps - 1) * (last - first)) ** rho
    levels = torch.cat([levels, torch.zeros(1)])
    x = latents * levels[0]
    for i, (now, after) in enumerate(zip(levels[:-1], levels[1:])):
        denoised = net(x, now.expand(len(x)), labels, cfg_scale, feat=feat)["x"]
        slope = (x - denoised) / now
        moved = x + (after - now) * slope
        if i < num_steps - 1:
            denoised = net(moved, after.expand(len(x)), labels, cfg_scale, feat=feat)["x"]
            moved = x + (after - now) * (0.5 * slope + 0.5 * (moved - denoised) / after)
        x = moved
    return x


def main(net, labels):
    feat = None
    return edm_sampler(net, torch.randn(1, 4, 8, 8), labels, feat=feat)
"""


def ancestral(**words: str) -> str:
    text = ANCESTRAL
    for name, word in words.items():
        text = text.replace(f"{{{name}}}", word)
    return text


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sides]:
    with Sides(tmp_path_factory.mktemp("sides")) as both:
        yield both


def written(name: str, place: Path, rest: str, *changes: tuple[str, str]) -> tuple[Path, str]:
    """The pipeline's file for a small model and the code that samples with it, and its text."""
    net = DOVE
    for old, new in changes:
        assert old in net
        net = net.replace(old, new)
    source = place / f"of_{name}" / f"{name}_authors.py"
    source.parent.mkdir()
    source.write_text(net + rest, encoding="utf-8")
    new_model(name, f"{source}::Dove", target="diffusers", into=place)
    file = place / name / f"pipeline_{name}.py"
    return file, file.read_text(encoding="utf-8")


def compared(file: Path, sides: Sides, old: str, new: str) -> None:
    """Compare whole trajectories; with a mistake in the pipeline they differ."""
    report = run_parity(file, ("stages",), sides=sides)
    assert report.ok, [one.reason for one in report.levels]
    text = file.read_text(encoding="utf-8")
    assert old in text
    file.write_text(text.replace(old, new), encoding="utf-8")
    assert not run_parity(file, ("stages",), sides=sides).ok
    file.write_text(text, encoding="utf-8")


@pytest.mark.sweep
def test_levels_that_a_caller_makes_are_made_by_the_pipeline(tmp_path: Path, sides: Sides) -> None:
    """The scale goes into the model; what else it needs is passed, and nothing is guided against."""
    file, text = written("rook", tmp_path, PASSED, *DISTILLED)
    assert "get_levels(num_steps=num_inference_steps, size=latents.shape[1])" in text
    assert "guidance=torch.full((len(latents),), float(guidance_scale), device=device)" in text
    assert "negative" not in text
    compared(file, sides, "base=1.2", "base=1.3")


@pytest.mark.sweep
def test_tokens_are_made_of_latents_as_the_authors_do(tmp_path: Path, sides: Sides) -> None:
    """The pipeline computes position ids itself, and is compared with the authors' own function."""
    source = tmp_path / "of_tern" / "tern_authors.py"
    source.parent.mkdir()
    source.write_text(TOKENS.replace("Net", "Tern"), encoding="utf-8")
    new_model("tern", f"{source}::Tern", target="diffusers", into=tmp_path)
    file = tmp_path / "tern" / "pipeline_tern.py"
    text = file.read_text(encoding="utf-8")
    assert "einops" not in text
    assert "ids: torch.Tensor" not in text
    assert "y: torch.Tensor | None = None" in text
    assert "from tern_authors import tokens_of" in (file.parent / "authors_sampling.py").read_text(encoding="utf-8")
    compared(file, sides, "torch.arange(w // 2)", "torch.arange(w // 2).flip(0)")


IMAGES = """

def run(model, encoder, image, steps):
    context = encoder(image)
    return sample(model, torch.randn(1, 4, 8, 8), steps, context, torch.zeros_like(context))
"""


def test_what_authors_embed_images_for_has_a_pipeline_of_images(tmp_path: Path, sides: Sides) -> None:
    file, text = written("hoopoe", tmp_path, COUNTED_UP + IMAGES)
    assert "image: PipelineImageInput | None = None" in text
    assert "prompt" not in text
    compared(file, sides, "encoder_hidden_states=image_embeds", "encoder_hidden_states=-image_embeds")


@pytest.mark.sweep
def test_a_time_that_is_counted_up_is_the_flow_scheduler_s_the_other_way(tmp_path: Path, sides: Sides) -> None:
    file, text = written("plover", tmp_path, COUNTED_UP)
    assert "scheduler: FlowMatchEulerDiscreteScheduler" in text
    assert "1 - t / self.scheduler.config.num_train_timesteps" in text
    compared(file, sides, "noise_pred = -noise_pred", "noise_pred = -1.1 * noise_pred")


@pytest.mark.parametrize(("changes", "stands"), [((), True), (DISTILLED, False)])
def test_a_loop_that_leaves_an_argument_of_the_model_out_is_not_taken(
    changes: tuple[tuple[str, str], ...], stands: bool, tmp_path: Path
) -> None:
    net = DOVE
    for old, new in changes:
        net = net.replace(old, new)
    (tmp_path / "net.py").write_text(net + COUNTED_UP, encoding="utf-8")
    reference = find_reference(f"{tmp_path / 'net.py'}::Dove")
    names = {"x": LATENTS, "t": TIME, "context": TEXT}
    assert (cut_of(reference, samplings_of(reference), names, "context") is not None) is stands


@pytest.mark.parametrize(("script", "stands"), [("Flow(Dove(8)).sample(context, 9)", True), ("pass", False)])
def test_a_loop_of_one_of_several_classes_is_taken_where_authors_use_it(
    script: str, stands: bool, tmp_path: Path
) -> None:
    text = DOVE + COUNTED_UP + COUNTED_UP.replace("class Flow", "class Other")
    (tmp_path / "net.py").write_text(text, encoding="utf-8")
    (tmp_path / "run.py").write_text(f"from net import *\n{script}\n", encoding="utf-8")
    reference, why = find_reference(f"{tmp_path / 'net.py'}::Dove"), dict[str, str]()
    names = {"x": LATENTS, "t": TIME, "context": TEXT}
    assert (cut_of(reference, samplings_of(reference), names, "context", why=why) is not None) is stands
    assert any("nothing says which one" in one for one in why.values()) is not stands


@pytest.mark.parametrize(("needed", "passed"), [((), {}), (("sizes",), {"sizes": False})])
def test_what_the_model_runs_with_none_of_is_passed_for_all_that_its_default_is_none(
    needed: tuple[str, ...], passed: dict[str, bool], tmp_path: Path
) -> None:
    net = DOVE.replace("t, context):", "t, context, sizes=None):")
    loop = COUNTED_UP.replace("n_timesteps, size=8):", "n_timesteps, size=8, sizes=None):")
    for old, new in (
        ("span, context):", "span, context, sizes=None):"),
        ("context=context)", "context=context, sizes=sizes)"),
        ("t.repeat(len(x)), context)", "t.repeat(len(x)), context, sizes=sizes)"),
    ):
        assert old in loop
        loop = loop.replace(old, new)
    (tmp_path / "net.py").write_text(net + loop, encoding="utf-8")
    reference = find_reference(f"{tmp_path / 'net.py'}::Dove")
    cut = cut_of(reference, samplings_of(reference), {"x": LATENTS, "t": TIME, "context": TEXT}, "context", needed)
    assert cut is not None
    assert cut.loop.conditions == passed


@pytest.mark.sweep
def test_an_interval_of_guidance_that_holds_every_step_is_guidance(tmp_path: Path, sides: Sides) -> None:
    file, _ = written("crow", tmp_path, INTERVAL)
    compared(file, sides, "negative_pred + self.guidance_scale", "negative_pred + 1.1 * self.guidance_scale")


def test_an_interval_that_some_steps_are_outside_of_is_an_argument(tmp_path: Path, sides: Sides) -> None:
    file, text = written("raven", tmp_path, INTERVAL.replace("low=0.0", "low=0.3"))
    assert "guidance_interval: tuple[float, float] = (0.3, 1.0)" in text
    compared(file, sides, "high else 1.0", "high else self.guidance_scale")


@pytest.mark.sweep
def test_levels_that_a_scheduler_is_told_are_told_to_its_copy(tmp_path: Path) -> None:
    scheduler = OWN_SCHEDULER
    for old, new in (
        ("num_inference_steps, device=None):", "num_inference_steps=None, device=None, sigmas=None):"),
        ("even = torch.linspace(1, 0, num_inference_steps + 1)", "even = torch.tensor([*sigmas, 0.0])"),
    ):
        assert old in scheduler
        scheduler = scheduler.replace(old, new)
    file, text = written("gull", tmp_path, scheduler + TOLD_SIGMAS)
    assert "sigmas = torch.linspace(1, 0.2, num_inference_steps).tolist() if sigmas is None else sigmas" in text
    with Sides(tmp_path / "own") as sides:  # its reference imports diffusers, which others must not
        compared(file, sides, "torch.linspace(1, 0.2,", "torch.linspace(1, 0.3,")


@pytest.mark.sweep
def test_a_scheduler_is_the_default_of_the_table_that_authors_choose_from(tmp_path: Path) -> None:
    """The model is called in one way of several engines, answers a variance, too, and gets what has rows twice."""
    taken = (("t, context):", "t, context, ids):"),
             ("self.c_in(context).mean(1))", "self.c_in(context).mean(1) + self.c_in(ids).mean())"),
             ("b, c, h, w = x.shape", "b, c, h, w = x.shape\n        _, n, _ = context.shape"),
             ("self.out = nn.Linear(dim, in_channels)", "self.out = nn.Linear(dim, 2 * in_channels)"),
             (".reshape(b, c, h, w)", ".reshape(b, 2 * c, h, w)"))  # fmt: skip
    file, text = written("kite", tmp_path, LISTED, *COUNTED, *taken)
    assert "scheduler: DDIMScheduler" in text
    assert "the rest is a variance" in text
    with Sides(tmp_path / "own") as sides:  # its reference imports diffusers, which others must not
        compared(file, sides, "noise_pred.chunk(2, dim=1)[0]", "noise_pred.chunk(2, dim=1)[1]")


@pytest.mark.sweep
def test_noise_is_drawn_alike_for_prompts_that_the_model_itself_guides_by(tmp_path: Path, sides: Sides) -> None:
    rest = GUIDING + ancestral(
        told="y", asked="net.forward_with_cfg", clips="False", kwargs="dict(context=y, cfg_scale=4.0)"
    )
    file, text = written("tern", tmp_path, rest, *COUNTED)
    assert "channels after 3 stay as they are" in text
    compared(file, sides, "[:, :3]", "[:, :2]")


@pytest.mark.sweep
def test_a_model_guides_itself_along_times_that_only_a_run_shows(tmp_path: Path, sides: Sides) -> None:
    file, text = written("crane", tmp_path, GUIDING + FALLING)
    assert "channels after 3 stay as they are" in text
    scheduler = json.loads((tmp_path / "crane" / "toy_config.json").read_text(encoding="utf-8"))["_scheduler"]
    assert {name: scheduler[name] for name in ("method", "last_level")} == {"method": "euler", "last_level": 0.04}
    compared(file, sides, "[:, :3]", "[:, :2]")


def test_a_model_that_is_told_nothing_has_a_pipeline_without_prompts(tmp_path: Path, sides: Sides) -> None:
    rest = ancestral(told="y=None", asked="net", clips="True", kwargs="{}")
    file, text = written("wren", tmp_path, rest, *WITHOUT_TEXT, (COUNTED[0][0], COUNTED[0][1]))
    assert "prompt" not in text
    assert "batch_size: int = 1" in text
    compared(file, sides, "self.scheduler.step(noise_pred,", "self.scheduler.step(-noise_pred,")


def test_a_sampler_that_inherits_its_loop_is_run_and_has_the_flow_scheduler(tmp_path: Path, sides: Sides) -> None:
    file, text = written("heron", tmp_path, INHERITED.replace("{change}", "(now - after)"))
    assert "scheduler: FlowMatchEulerDiscreteScheduler" in text
    assert "compare the guidance with cfg_strength=3.0 of Straight" in text
    authors = (file.parent / "authors_sampling.py").read_text(encoding="utf-8")
    assert "Straight(sigma_min=1).sample(model=denoiser, noise=begun, steps=steps)" in authors
    compared(file, sides, "self.scheduler.step(noise_pred,", "self.scheduler.step(0.9 * noise_pred,")


def test_a_sampler_whose_steps_no_scheduler_takes_is_left_to_a_person(tmp_path: Path) -> None:
    _, text = written("stork", tmp_path, INHERITED.replace("{change}", "(now - after) ** 2"))
    assert "raise NotImplementedError" in text


FILM = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, in_channels: int = 4, width: int = 8, text_dim: int = 6):
        super().__init__()
        self.x_in, self.c_in = nn.Conv3d(in_channels, width, 1), nn.Linear(text_dim, width)
        self.out = nn.Conv3d(width, in_channels, 1)

    def forward(self, x, t, context):
        b, c, {depth}, h, w = x.shape
        told = self.c_in(context).mean(1) * t[:, None]
        return self.out(self.x_in(x) + told[:, :, None, None, None])
"""


@pytest.mark.parametrize(("depth", "film"), [("frames", True), ("d", False)])
def test_a_model_of_videos_has_a_pipeline_of_videos(depth: str, film: bool, tmp_path: Path) -> None:
    """Latents with five axes can also be voxels: names of frames decide."""
    file = tmp_path / "net.py"
    file.write_text(FILM.format(depth=depth), encoding="utf-8")
    plan = new_model("swan", f"{file}::Net", target="diffusers", into=tmp_path, dry_run=True)
    texts = {change.path.rpartition("/")[2]: change.new for change in plan.changes}
    pipeline, output = texts["pipeline_swan.py"], texts["pipeline_output.py"]
    assert ("num_frames: int" in pipeline) is film
    assert ("VideoProcessor(" in pipeline) is film
    assert ("num_videos_per_prompt" in pipeline) is film
    assert ("frames:" if film else "samples:") in output
    assert ("AutoencoderKL" in pipeline) is film  # which decodes frames, where the autoencoder is one of images


@pytest.mark.parametrize(("name", "said"), [
    ("first", "latents.shape[1] if latents is not None else self.vae.config.latent_channels,"),
    ("num_channels", "self.transformer.config.num_channels,"),  # as few as those of pixels
])  # fmt: skip
def test_latents_that_are_passed_need_no_autoencoder_to_tell_their_channels(
    name: str, said: str, tmp_path: Path
) -> None:
    file = tmp_path / "net.py"
    text = FILM.format(depth="frames").replace("in_channels", name) + TWO_STEPS
    file.write_text(text, encoding="utf-8")
    plan = new_model("swift", f"{file}::Net", target="diffusers", into=tmp_path, dry_run=True)
    pipeline = next(change.new for change in plan.changes if change.path.endswith("pipeline_swift.py"))
    assert said in pipeline


LINE = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, in_channels: int = 4, width: int = 8):
        super().__init__()
        self.x_in, self.out = nn.Conv{n}d(in_channels, width, 1), nn.Conv{n}d(width, in_channels, 1)

    def forward(self, x, t):
        return self.out(self.x_in(x) + t.sum())


def train_one_epoch(net: Net, batches, optimizer, lr_scheduler, steps):
    for x, t in batches:
        loss = (net(x, t) - x).square().mean()
        loss.backward()
        x = lr_scheduler.step(loss, t, x)
"""


@pytest.mark.parametrize("n", [1, 2])
def test_latents_of_a_line_are_no_pictures_and_training_is_no_sampling(n: int, tmp_path: Path) -> None:
    file = tmp_path / "net.py"
    file.write_text(LINE.format(n=n), encoding="utf-8")
    plan = new_model("egret", f"{file}::Net", target="diffusers", into=tmp_path, dry_run=True)
    texts = {change.path.rpartition("/")[2]: change.new for change in plan.changes}
    assert ("AutoencoderKL" in texts["pipeline_egret.py"]) is (n == 2)
    assert "train_one_epoch" not in texts["pipeline_egret.py"]


@pytest.mark.sweep
def test_labels_may_be_rows_of_zeros_with_a_one(tmp_path: Path, sides: Sides) -> None:
    """The network is preconditioned, and returns a mapping."""
    file, text = written("ibis", tmp_path, PRECONDITIONED, *ONE_HOT)
    assert "one_hot(labels, num_classes + 1)[:, :num_classes]" in text
    assert "if self.transformer.config.learn_sigma:" in text
    compared(file, sides, "num_classes + 1)[:, :num_classes]", "num_classes + 1)[:, 1:]")
