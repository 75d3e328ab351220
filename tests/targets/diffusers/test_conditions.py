"""Conditions of models that are not prompts: which they are, and a pipeline that passes them."""

import ast
import json
from pathlib import Path

import pytest

from omni_kit.parity import run_parity
from omni_kit.parity.processes.workers import Sides
from omni_kit.pysource.eval import UNKNOWN
from omni_kit.scaffold import new_model
from omni_kit.targets.diffusers.porting.forward import MASK, TEXT, roles_of
from omni_kit.targets.diffusers.porting.masks import masks_of_latents, masks_of_padding
from omni_kit.upstream.diffusers.signatures import Argument

UNET = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, input_dim, output_dim, near_cond_dim=None, far_cond_dim=None, width=64):
        super().__init__()
        self.far_cond_dim = far_cond_dim
        self.first = nn.Conv1d(input_dim, width, 3, padding=1)
        self.time = nn.Linear(1, width)
        self.near = nn.Linear(near_cond_dim, width) if near_cond_dim is not None else None
        self.far = nn.Linear(far_cond_dim, width) if far_cond_dim is not None else None
        self.last = nn.Conv1d(width, output_dim, 3, padding=1)

    def forward(self, sample: torch.Tensor, timestep, near_cond=None, far_cond=None):
        x = self.first(sample.permute(0, 2, 1))
        t = torch.as_tensor(timestep).reshape(-1, 1).to(x.dtype) / 100
        x = x + self.time(t.expand(len(x), 1))[..., None]
        if near_cond is not None:
            x = x + self.near(near_cond).permute(0, 2, 1)
        if far_cond is not None:
            x = x + self.far(far_cond)[..., None]
        return self.last(torch.tanh(x)).permute(0, 2, 1)
"""
POLICY = """
import torch
from diffusers import DDIMScheduler
from model import Net


class Policy:
    def __init__(self, noise_scheduler: DDIMScheduler, size, width, steps=None):
        self.model = Net(input_dim=size, output_dim=size, near_cond_dim=None, far_cond_dim=width)
        self.noise_scheduler, self.num_inference_steps = noise_scheduler, steps

    def conditional_sample(self, data, mask, near_cond=None, far_cond=None, **kwargs):
        scheduler = self.noise_scheduler
        latents = torch.randn(size=data.shape, dtype=data.dtype, device=data.device)
        scheduler.set_timesteps(self.num_inference_steps)
        for t in scheduler.timesteps:
            latents[mask] = data[mask]
            answer = self.model(latents, t, near_cond=near_cond, far_cond=far_cond)
            latents = scheduler.step(answer, t, latents, **kwargs).prev_sample
        return latents
"""


def test_a_condition_that_is_on_is_in_the_toy_and_the_authors_method_is_gone_along(tmp_path: Path) -> None:
    """One that is off is an argument of the pipeline, with a to-do; neither is a prompt."""
    (tmp_path / "model.py").write_text(UNET, encoding="utf-8")
    (tmp_path / "policy.py").write_text(POLICY, encoding="utf-8")
    written = new_model("reach", f"{tmp_path / 'model.py'}::Net", target="diffusers", into=tmp_path / "out")
    file = tmp_path / "out" / "reach" / "pipeline_reach.py"
    text = file.read_text(encoding="utf-8")
    assert "far_cond=far_cond" in text
    assert "prompt" not in text
    assert any("compare a run with near_cond" in one.what for one in written.plan.todo)
    with Sides(tmp_path / "own") as sides:
        report = run_parity(file, ("stages",), sides=sides)
        assert report.ok, report.levels
        file.write_text(text.replace("far_cond=far_cond,", "far_cond=-far_cond,"), encoding="utf-8")
        assert not run_parity(file, ("stages",), sides=sides).ok


FIXED = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, in_channelDEFAULT, width=32):
        super().__init__()
        self.first = nn.Conv2d(in_channel, width, 3, padding=1)
        self.time = nn.Linear(1, width)
        self.last = nn.Conv2d(width, 3, 3, padding=1)

    def forward(self, x, time):
        t = self.time(time.reshape(-1, 1).to(x.dtype) / 100)
        return self.last(torch.tanh(self.first(x) + t[..., None, None]))
"""


@pytest.mark.parametrize(("default", "same"), [("", True), ("=5", False)])
def test_a_model_takes_the_channels_that_it_always_returns_unless_authors_name_others(
    default: str, same: bool, tmp_path: Path
) -> None:
    (tmp_path / "model.py").write_text(FIXED.replace("DEFAULT", default), encoding="utf-8")
    new_model("fixed", f"{tmp_path / 'model.py'}::Net", target="diffusers", into=tmp_path / "out")
    toy = json.loads((tmp_path / "out" / "fixed" / "toy_config.json").read_text(encoding="utf-8"))
    assert (toy["in_channel"] == 3) is same


def taken(**required: bool) -> dict[str, Argument]:
    return {name: Argument(name, UNKNOWN if one else None, one, "", "") for name, one in required.items()}


@pytest.mark.parametrize(("arguments", "text"), [
    (taken(x=True, t=True, cond=True), "cond"),
    (taken(x=True, t=True, cond=False), ""),
    (taken(x=True, t=True, self_cond=False), ""),
    (taken(x=True, t=True, context=False), "context"),
    (taken(x=True, t=True, self_cond=False, text_emb=False), "text_emb"),
    (taken(x=True, t=True, cross_attn_cond=False), "cross_attn_cond"),
])  # fmt: skip
def test_an_optional_condition_of_any_kind_is_no_prompt(arguments: dict[str, Argument], text: str) -> None:
    assert next((old for old, new in roles_of(arguments).items() if new == TEXT), "") == text


def test_an_optional_y_is_a_prompt_of_a_model_that_is_made_with_its_width() -> None:
    optional = taken(x=True, t=True, y=False, fps=False)
    assert roles_of(optional, worded=True).get("y") == TEXT
    assert MASK not in roles_of(optional | taken(masked=False, video_mask=False), worded=True).values()
    assert "y" not in roles_of(optional)


@pytest.mark.parametrize(("names", "masks", "mask"), [
    (["x", "mask", "mu", "t"], ["mask"], ""),
    (["x", "t", "y", "mask"], [], "mask"),
    (["x", "t", "context", "x_mask", "context_mask"], [], "context_mask"),
])  # fmt: skip
def test_masks_of_latents_are_none_of_a_prompt(names: list[str], masks: list[str], mask: str) -> None:
    roles = roles_of(taken(**dict.fromkeys(names, True)), worded=True, of_latents=masks)
    assert next((old for old, new in roles.items() if new == MASK), "") == mask


@pytest.mark.parametrize(("body", "found"), [
    ("masks = [mask]\n    down = masks[-1]\n    return self.last(x * down)", {"mask"}),
    ("return mask.unsqueeze(1) * self.last(x)", {"mask"}),
    ("return self.last(x, y * mask)", set()),
    ("return self.last(x, y, mask)", set()),
    ("return 2 * mask + x", set()),
])  # fmt: skip
def test_a_mask_is_of_latents_where_forward_multiplies_by_it(body: str, found: set[str]) -> None:
    node = ast.parse(f"def forward(self, x, t, y, mask):\n    {body}").body[0]
    assert isinstance(node, ast.FunctionDef)
    assert masks_of_latents(node, ["x", "t", "y", "mask"]) == found


@pytest.mark.parametrize(("body", "found"), [
    ("return self.last(x, y.masked_fill(mask[:, None], 0.0))", {"mask"}),
    ("return self.last(x, y.masked_fill_(mask.bool().unsqueeze(1), 0.0))", {"mask"}),
    ("return self.attend(x, y, y, key_padding_mask=mask)", {"mask"}),
    ("return self.last(x, y.masked_fill(~mask, 0.0))", set()),
    ("return self.last(x, y.masked_fill(mask == 0, 0.0))", set()),
    ("return self.last(x, y.masked_fill(mask.logical_not(), 0.0))", set()),
    ("mask = ~mask\n    return self.attend(x, y, y, key_padding_mask=mask)", set()),
    ("return self.last(x, y, mask)", set()),
])  # fmt: skip
def test_a_mask_that_is_true_where_nothing_counts_is_none_of_words(body: str, found: set[str]) -> None:
    node = ast.parse(f"def forward(self, x, t, y, mask):\n    {body}").body[0]
    assert isinstance(node, ast.FunctionDef)
    assert masks_of_padding(node, ["x", "t", "y", "mask"]) == found
