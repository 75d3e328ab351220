"""Samplers of objects that make their model themselves, and that are made of settings."""

from pathlib import Path

import pytest
import torch

from omni_kit.targets.diffusers.scheduling.authors_process import process_along
from omni_kit.targets.diffusers.scheduling.betas import betas_in
from omni_kit.targets.references.sampled_latents import computed, noise_first
from omni_kit.targets.references.stepping import rows_alike
from omni_kit.upstream.repositories.processes.process import Process
from omni_kit.upstream.repositories.reference import find_reference
from tests.upstream.repositories.test_authors_calls import NET

HOLDER = """
import torch
from torch import nn


class Diffusion(nn.Module):
    def __init__(self, opt):
        super().__init__()
        from net import Net
        self.denoise_fn, self.bins = Net(**opt["net"]), opt["bins"]
        noise = opt["noise"]
        betas = torch.linspace(noise["first"], opt["noise"]["last"], opt["noise"]["timesteps"]).double()
        kept = torch.cumprod(1 - betas, 0)
        self.register_buffer("betas", betas)
        self.register_buffer("kept", kept)
        self.register_buffer("before", torch.cat([torch.ones(1).double(), kept[:-1]]))

    def p_sample(self, x, t, cond):
        beta, kept, before = (one[t][:, None, None, None].float() for one in (self.betas, self.kept, self.before))
        start = (x - (1 - kept).sqrt() * self.denoise_fn(x, t, cond)) / kept.sqrt()
        mean = (beta * before.sqrt() * start + (1 - before) * (1 - beta).sqrt() * x) / (1 - kept)
        noise = torch.empty_like(x).normal_()
        return mean + (t > 0).float()[:, None, None, None] * (beta * (1 - before) / (1 - kept)).sqrt() * noise

    def sampling(self):
        x = torch.randn(self.cond.shape[0], 1, self.bins, self.cond.shape[2])
        for i in reversed(range(len(self.betas))):
            x = self.p_sample(x, torch.full((len(x),), i), self.cond)
        return self.denorm(x[:, 0].transpose(1, 2))

    def denorm(self, x):
        return x * torch.ones(3, self.bins)

    def forward(self, mel, cond):
        self.cond = cond.transpose(1, 2)
        if mel is None:
            return self.sampling(), None
        return self.denoise_fn(mel, 0, self.cond)
"""
OPTIONS = """
model:
  net: {dim: 8}
  bins: 80
  noise: {first: 0.0001, last: 0.02, timesteps: 400}
"""


def found(place: Path) -> Process | None:
    net = NET.replace("__init__(self, dim=8)", "__init__(self, dim)")
    (place / "net.py").write_text(net.replace("y=None", "cond"), encoding="utf-8")
    (place / "holder.py").write_text(HOLDER, encoding="utf-8")
    (place / "model.yaml").write_text(OPTIONS, encoding="utf-8")
    reference = find_reference(f"{place / 'net.py'}::Net")
    return process_along(reference, {"x": "hidden_states", "t": "timestep", "cond": "encoder_hidden_states"})


def test_a_holder_is_made_of_nested_settings_and_its_latents_are_the_last_that_it_computes(tmp_path: Path) -> None:
    """What it makes of them has other axes, and is only made of latents of its own size."""
    process = found(tmp_path)
    assert process is not None
    assert (process.scheduler, process.config) == ("DDPMScheduler", {"clip_sample": False, "num_train_timesteps": 400})
    assert process.called.startswith("computed(lambda: around(Diffusion, ")
    assert process.ranks == (4,)  # it makes latents itself
    assert "noise=namespace(first=0.0001, last=0.02, timesteps=steps)" in process.called


def test_betas_are_told_apart_by_how_tables_lead_to_them() -> None:
    """With many steps a product of products is nothing, so that there are fewer readings of one table."""

    def products(count: int) -> list[float]:
        kept: list[float] = torch.cumprod(1 - torch.linspace(0.0001, 0.02, count).double(), 0).tolist()
        return kept

    few, many = betas_in([products(24)]), betas_in([products(1000)])
    assert len(few) > len(many)
    right = next(one for one in few if one.numbers[-1] == pytest.approx(0.02))
    other = right.among(many)
    assert other is not None
    assert other.numbers[-1] == pytest.approx(0.02)


def test_computed_latents_are_the_last_of_their_shape() -> None:
    x = torch.ones(2, 3)
    assert computed(lambda: (x * 2).sum(), x.shape).tolist() == (x * 2).tolist()

    def fails() -> None:
        raise ValueError((x + 1).sum())

    assert computed(fails, x.shape).tolist() == (x + 1).tolist()


def test_noise_that_fills_a_tensor_is_drawn_as_any_other() -> None:
    with rows_alike(3):
        drawn = torch.randn(2, 3)
    with rows_alike(3):
        assert torch.equal(torch.empty(2, 3).normal_(), drawn)
    with noise_first(drawn):
        assert torch.equal(torch.empty(2, 3).normal_(generator=None), drawn)
