"""Conditions that authors join with latents for their model: they become arguments of the pipeline."""

from pathlib import Path

import pytest

from omni_kit.parity import run_parity
from omni_kit.parity.processes.workers import Sides
from omni_kit.scaffold import new_model
from omni_kit.targets.diffusers.scheduling.authors_process import confirmed, process_along
from omni_kit.upstream.repositories.processes.process import Joined, Mixed, Process
from omni_kit.upstream.repositories.processes.sampler_object import process_of
from omni_kit.upstream.repositories.reference import find_reference
from tests.conftest import first

NET = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, in_channel=6, out_channel=3, width=16):
        super().__init__()
        self.first = nn.Conv2d(in_channel, width, 3, padding=1)
        self.time = nn.Linear(1, width)
        self.last = nn.Conv2d(width, out_channel, 3, padding=1)

    def forward(self, x, time):
        t = self.time(time.reshape(-1, 1).to(x.dtype) / UNIT)
        return self.last(torch.tanh(self.first(x) + t[..., None, None]))
"""
RESTORER = """
import torch
from net import Net
from torch import nn


class Restorer(nn.Module):
    def __init__(self, unet, schedule):
        super().__init__()
        self.denoise_fn = Net(**unet)
        self.schedule = schedule

    def set_schedule(self, device=torch.device("cuda"), phase="train"):
        of = self.schedule[phase]
        betas = torch.linspace(of["first"], of["last"], of["n_timestep"], device=device).double()
        kept = torch.cumprod(1 - betas, 0)
        before = torch.cat([torch.ones(1).double(), kept[:-1]])
        self.betas, self.kept, self.count = betas, kept, len(betas)
        self.register_buffer("variance", betas * (1 - before) / (1 - kept))

    def p_sample(self, y, step, given):
        beta, kept = self.betas[step].float(), self.kept[step].float()
        out = self.denoise_fn(JOINED, TIME)
        y = (y - beta / (1 - kept).sqrt() * out) / (1 - beta).sqrt()
        return y + self.variance[step].float().sqrt() * torch.randn_like(y) if step > 0 else y

    @torch.no_grad()
    def restoration(self, y_cond, y_t=None):
        y_t = torch.randn_like(y_cond) if y_t is None else y_t
        for step in reversed(range(self.count)):
            y_t = self.p_sample(y_t, step, y_cond)
        return y_t
"""
CONFIG = """{ // of the network
    "unet": {"in_channel": 6, "out_channel": 3, "width": 16}, // before "//"
    "schedule": {
        "train": {"first": 1e-6, "last": 0.01, "n_timestep": 2000},
        "test": {"first": 1e-4, "last": 0.09, "n_timestep": 1000}
    }
}"""
STEP, LEVEL = "torch.full((len(y),), step)", "self.kept[step].sqrt().float().expand(len(y), 1)"


def written(place: Path, joined: str, time: str) -> Path:
    """Write an authors' model, and what samples with it."""
    (place / "net.py").write_text(NET.replace("UNIT", "1" if time == LEVEL else "1000"), encoding="utf-8")
    text = RESTORER.replace("JOINED", joined).replace("TIME", time)
    (place / "restorer.py").write_text(text, encoding="utf-8")
    (place / "config.json").write_text(CONFIG, encoding="utf-8")
    return place / "net.py"


def found(place: Path, joined: str, time: str = STEP) -> Process | None:
    """Return how it samples."""
    reference = find_reference(f"{written(place, joined, time)}::Net")
    return process_along(reference, {"x": "hidden_states", "time": "timestep"})


@pytest.mark.parametrize(("joined", "time", "parts", "level"), [
    ("torch.cat([given, y], dim=1)", LEVEL, ("y_cond", ""), 0.5),
    *first(0, [("torch.cat([y, given], dim=1)", STEP, ("", "y_cond"), 0.0)]),
])  # fmt: skip
def test_a_condition_is_found_with_its_place_and_the_schedule_is_made_first(
    joined: str, time: str, parts: tuple[str, ...], level: float, tmp_path: Path
) -> None:
    """The schedule is that of the phase in which the authors sample."""
    process = found(tmp_path, joined, time)
    assert process is not None
    assert (process.joined, process.level) == (Joined(1, parts), level)
    assert process.scheduler == "DDPMScheduler"
    assert process.config["beta_end"] == 0.09
    assert "rescale_betas_zero_snr" not in process.config
    assert "'set_schedule', device=begun.device).restoration(y_cond=conditioned['y_cond'], y_t=begun)" in process.called


@pytest.mark.parametrize("joined", [
    "torch.cat([given * y, y], dim=1)", *first(0, ["y + given", "torch.cat([given, y] if step else [y, given], dim=1)"])
])  # fmt: skip
def test_a_condition_that_changes_in_each_step_is_not_joined(joined: str, tmp_path: Path) -> None:
    assert found(tmp_path, joined) is None


@pytest.mark.sweep
@pytest.mark.parametrize("time", [STEP, LEVEL])
def test_a_pipeline_joins_an_image_with_latents(time: str, tmp_path: Path) -> None:
    net = written(tmp_path, "torch.cat([given, y], dim=1)", time)
    new_model("tern", f"{net}::Net", target="diffusers", into=tmp_path / "out")
    file = tmp_path / "out" / "tern" / "pipeline_tern.py"
    text = file.read_text(encoding="utf-8")
    assert "hidden_states=torch.cat([image, latents], dim=1)" in text
    with Sides(tmp_path / "own") as sides:
        report = run_parity(file, ("stages",), sides=sides)
        assert report.ok, report.levels
        file.write_text(text.replace("torch.cat([image, latents]", "torch.cat([-image, latents]"), encoding="utf-8")
        assert not run_parity(file, ("stages",), sides=sides).ok


MIXING = "            y_t = self.p_sample(y_t, step, y_cond)\n"


def mixing(formula: str, place: Path) -> Process | None:
    """Return how a sampler goes that mixes its latents with known values by a formula."""
    written(place, "torch.cat([given, y], dim=1)", STEP)
    file = place / "restorer.py"
    text = file.read_text(encoding="utf-8").replace("y_cond, y_t=None", "y_cond, y_t=None, y_0=None, mask=None")
    mixes = f"            if mask is not None:\n                y_t = {formula}\n"
    file.write_text(text.replace(MIXING, MIXING + mixes), encoding="utf-8")
    return process_along(find_reference(f"{place / 'net.py'}::Net"), {"x": "hidden_states", "time": "timestep"})


@pytest.mark.parametrize(("formula", "mixed"), [
    ("y_0 * (1.0 - mask) + mask * y_t", Mixed("y_0", "mask")),
    *first(0, [("y_0 * mask + (1 - mask) * y_t", Mixed("y_0", "mask", generates=False)),
               ("0.5 * y_0 * (1.0 - mask) + mask * y_t", None), ("y_t + mask * y_0", None)]),
])  # fmt: skip
def test_known_values_are_mixed_with_latents_where_a_mask_says_so(
    formula: str, mixed: Mixed | None, tmp_path: Path
) -> None:
    process = mixing(formula, tmp_path)
    assert process is not None
    assert process.mixed == mixed
    assert ("mask=mixed['mask']" in process.called) == (mixed is not None)


@pytest.mark.sweep
def test_a_pipeline_mixes_known_values_with_latents(tmp_path: Path) -> None:
    mixing("y_0 * (1.0 - mask) + mask * y_t", tmp_path)
    new_model("fill", f"{tmp_path / 'net.py'}::Net", target="diffusers", into=tmp_path / "out")
    file = tmp_path / "out" / "fill" / "pipeline_fill.py"
    text = file.read_text(encoding="utf-8")
    line = "latents = original_image * (1 - mask_image) + latents * mask_image"
    assert line in text
    with Sides(tmp_path / "own") as sides:
        report = run_parity(file, ("stages",), sides=sides)
        assert report.ok, report.levels
        file.write_text(text.replace(line, "latents = latents"), encoding="utf-8")
        assert not run_parity(file, ("stages",), sides=sides).ok


LATENT_NET = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, in_channels=8, out_channels=4, width=16, context_dim=8):
        super().__init__()
        self.first = nn.Conv2d(in_channels, width, 3, padding=1)
        self.time, self.told = nn.Linear(1, width), nn.Linear(context_dim, width)
        self.last = nn.Conv2d(width, out_channels, 3, padding=1)

    def forward(self, x, timesteps, context):
        t = self.time(timesteps.reshape(-1, 1).to(x.dtype) / 1000) + self.told(context).mean(1)
        return self.last(torch.tanh(self.first(x) + t[..., None, None]))
"""
WRAPPER = """
import torch
from torch import nn


class Wrapper(nn.Module):
    def forward(self, x, t, c_concat=None, c_crossattn=None):
        return self.net(torch.cat([x] + c_concat, dim=1), t, context=c_crossattn[0])


def against(c):
    return {"c_concat": [torch.zeros_like(c["c_concat"][0])], **c}
"""
DDIM = """
import numpy as np
import torch


class DDIMSampler:
    def __init__(self, model, **kwargs):
        self.model = model

    def make_schedule(self, count):
        self.steps = np.asarray([*range(0, 1000, 1000 // count)]) + 1

    @torch.no_grad()
    def sample(self, S, batch_size, shape, conditioning=None, x_T=None, verbose=True,
               unconditional_guidance_scale=1.0, unconditional_conditioning=None):
        self.make_schedule(S)
        return self.ddim_sampling(conditioning, x_T, unconditional_guidance_scale, unconditional_conditioning), {}

    def ddim_sampling(self, cond, x, scale, other):
        steps = self.stepsCUT
        for at, step in reversed([*enumerate(steps)]):
            t = torch.full((len(x),), int(step), dtype=torch.long)
            if other is None or scale == 1.0:
                out = self.model.apply_model(x, t, cond)
            else:
                both = {key: [torch.cat([other[key][0], cond[key][0]])] for key in cond}
                none, out = self.model.apply_model(torch.cat([x] * 2), torch.cat([t] * 2), both).chunk(2)
                out = none + scale * (out - none)
            now = self.model.alphas_cumprod[step]
            after = self.model.alphas_cumprod[steps[at - 1]] if at else self.model.alphas_cumprod[0]
            x = after.sqrt() * (x - (1 - now).sqrt() * out) / now.sqrt() + (1 - after).sqrt() * out
        return x
"""
LATENT_CONFIG = """
model:
  target: ddpm.LatentDiffusion
  params:
    linear_start: 0.00085
    linear_end: 0.012
    timesteps: 1000
    conditioning_key: hybrid
    unet_config:
      target: net.Net
      params: {in_channels: 8, out_channels: 4, width: 16, context_dim: 8}
"""


def latent(place: Path, cut: str) -> str:
    """Write a sampler of latent diffusion, and what it samples with."""
    sampler, run = DDIM.replace("CUT", cut), "from ddim import DDIMSampler\n\nsampler = DDIMSampler(model)\n"
    files = {
        "net.py": LATENT_NET,
        "wrapper.py": WRAPPER,
        "ddim.py": sampler,
        "config.yaml": LATENT_CONFIG,
        "run.py": run,
    }
    for name, text in files.items():
        (place / name).write_text(text, encoding="utf-8")
    return f"{place / 'net.py'}::Net"


@pytest.mark.parametrize(("cut", "skips"), [("[:-1]", 1), *first(0, [("", 0), ("[1:]", None)])])
def test_steps_that_a_sampler_leaves_out_are_shown_by_a_run(cut: str, skips: int | None, tmp_path: Path) -> None:
    reference = find_reference(latent(tmp_path, cut))
    process = process_of(reference, "context")
    assert process is not None
    assert process.joined == Joined(1, ("", "c_concat"), zeroed=False)
    ran = confirmed(reference, process, {"x": "hidden_states", "timesteps": "timestep"})
    assert (ran.skips if ran is not None else None) == skips


@pytest.mark.sweep
def test_a_pipeline_of_latent_diffusion_joins_encoded_images(tmp_path: Path) -> None:
    """It guides against zeros in their place, and leaves out the step that its authors leave out."""
    source = latent(tmp_path, "[:-1]")
    text = WRAPPER.replace('return {"c_concat": [torch', 'c["c_concat"] = [torch').replace(", **c}", "\n    return c")
    (tmp_path / "wrapper.py").write_text(f"{text}\n\ndef decode(vae, z):\n    return vae.decode(z)\n", encoding="utf-8")
    new_model("shown", source, target="diffusers", into=tmp_path / "out")
    file = tmp_path / "out" / "shown" / "pipeline_shown.py"
    text = file.read_text(encoding="utf-8")
    assert "torch.cat([latents, negative_image_latents], dim=1)" in text
    assert "timesteps = self.scheduler.timesteps[1:]" in text
    with Sides(tmp_path / "own") as sides:
        report = run_parity(file, ("stages",), sides=sides)
        assert report.ok, report.levels
