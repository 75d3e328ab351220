"""Trains generated integrations on tiny pipelines, in a process of its own: VeOmni changes transformers for good.

python -m tests.targets.veomni.dit.conditions_probe PIPELINES PACKAGES ANSWERS NAME ...
"""

import contextlib
import importlib
import inspect
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import distributed

from tests.diffusers_pipelines import VIDEOS

_STEPS = 12
_SIZES = ((64, 64), (64, 96))
_PROMPTS = ["a cat on the mat", "a red dog"]


def main(pipelines: Path, packages: Path, answers: Path, names: list[str]) -> None:
    """Leaves what was found of each pipeline in one JSON file."""
    sys.path.insert(0, str(packages))
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    from veomni.distributed.parallel_state import init_parallel_state

    init_parallel_state(dp_size=1, device_type="cpu")
    found = {name: _probe(name, pipelines / name, packages) for name in names}
    answers.write_text(json.dumps(found), encoding="utf-8")


def _probe(name: str, root: Path, packages: Path) -> dict[str, Any]:
    registered = {part: importlib.import_module(f"{name}.{name}_{part}") for part in ("condition", "transformer")}

    def of(part: str, what: str) -> Any:
        return getattr(registered[part], f"register_{name}_{part}_{what}")()

    config = of("condition", "config").from_pretrained(str(root), seed=1, torch_dtype_of_encoders="float32")
    condition = of("condition", "modeling")._from_config(config)
    later = of("condition", "modeling")._from_config(config, meta_init=True)
    given = condition.get_condition(inputs=_PROMPTS, outputs=None, **_media(name in VIDEOS))
    model = of("transformer", "modeling").from_pretrained(root / "transformer").train()
    ready = condition.process_condition(**given)
    losses = _train(model, condition, given)
    model.save_pretrained(packages / f"{name}_trained")
    return {
        "losses": losses,
        "keys": sorted(ready),
        "forward": sorted(inspect.signature(type(model).forward).parameters),
        "lengths": sorted({len(values) for values in ready.values()}),
        "trains": [one for one, parameter in condition.named_parameters() if parameter.requires_grad],
        "encoders_without_pipeline": [one for one, _ in later.named_parameters()],
        "later": sorted(later.process_condition(**given)),
        "decoded": _decoded(condition, root, name in VIDEOS, given["latents"][0]),
        "other_targets": _other_targets(later, given["latents"][0]),
        "drawn": _drawn(root, packages / f"{name}_trained", model),
    }


def _media(videos: bool) -> dict[str, Any]:
    """Two samples of different sizes, smooth, so that they are no noise."""
    made = []
    for rows, columns in _SIZES:
        x, y, t = np.meshgrid(np.linspace(0, 3, columns), np.linspace(0, 2, rows), np.linspace(0, 1, 9))
        frames = np.stack([np.sin(x + t), np.cos(y - t), np.sin(x * y)], axis=0)  # [3, rows, columns, 9]
        made.append(((frames + 1) * 127.5).astype(np.uint8))
    if videos:
        return {"images": None, "videos": [[torch.from_numpy(one).permute(3, 0, 1, 2)] for one in made]}
    return {"images": [[Image.fromarray(one[..., 0].transpose(1, 2, 0))] for one in made], "videos": [[], []]}


def _train(model: Any, condition: Any, given: dict[str, Any]) -> list[float]:
    """The losses of a few steps on the same noise."""
    optimizer, losses = torch.optim.AdamW(model.parameters(), 3e-3), []
    for _ in range(_STEPS):
        condition.generator.manual_seed(3)
        loss = torch.stack(list(model(**condition.process_condition(**given)).loss.values())).sum()
        torch.autograd.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def _other_targets(condition: Any, clean: torch.Tensor) -> dict[str, float]:
    """For schedulers without flow: how far noisy latents and targets are from what diffusers' scheduler makes."""
    from diffusers import DDPMScheduler

    found, generator = {}, condition.generator
    for kind in ("epsilon", "v_prediction", "sample"):
        condition.scheduler = DDPMScheduler(prediction_type=kind)
        condition.scheduler.set_timesteps(1000)
        times = condition.scheduler.timesteps.float()
        generator.manual_seed(5)
        noisy, step, target = condition._noised(clean, torch.stack([times, times]))
        step = step.long()
        generator.manual_seed(5)
        torch.randint(1000, (1,), generator=generator)  # the step was drawn first
        noise = torch.randn(clean.shape, generator=generator)
        velocity = condition.scheduler.get_velocity(clean, noise, step)
        expected = {"epsilon": noise, "v_prediction": velocity, "sample": clean}[kind]
        added = noisy - condition.scheduler.add_noise(clean, noise, step)
        # a pipeline that turns the sign of its denoiser's answer wants the target turned, all of it
        turned = min(float((target - sign * expected).abs().max()) for sign in (1, -1))
        found[kind] = max(float(added.abs().max()), turned)
    return found


class Recorded(Exception):
    """Ends a pipeline at its decoder."""


class Answered:
    """A scheduler every step of which ends at the same latents."""

    def __init__(self, scheduler: Any, latents: torch.Tensor) -> None:
        self._scheduler, self._latents = scheduler, latents

    def __getattr__(self, name: str) -> Any:
        """What the scheduler has."""
        return getattr(self._scheduler, name)

    def step(self, output: Any, step: Any, sample: torch.Tensor, *args: Any, **kwargs: Any) -> tuple[torch.Tensor]:
        """The latents, whatever comes in; in the shape that the pipeline gives them."""
        return (self._latents.reshape(sample.shape),)


def _decoded(condition: Any, root: Path, videos: bool, clean: torch.Tensor) -> float:
    """How far what the pipeline decodes, of our clean latents, is from what the encoder made of the media.

    The pipeline undoes packing and scaling by its own code.
    """
    encoded = condition._encoded(condition._pixels(_media(videos)["videos" if videos else "images"][0][0]))
    pipeline, seen = _pipeline(root), []

    def decode(latents: torch.Tensor, *args: Any, **kwargs: Any) -> None:
        seen.append(latents)
        raise Recorded

    pipeline.scheduler, pipeline.vae.decode = Answered(pipeline.scheduler, clean), decode
    with contextlib.suppress(Recorded):
        _draw(pipeline, output_type="pil")
    return float((seen[0].reshape(encoded.shape) - encoded).abs().max() / encoded.abs().max())


def _drawn(root: Path, saved: Path, model: Any) -> dict[str, float]:
    """How far what a pipeline draws with the saved transformer is from what it draws with the trained weights."""
    pipeline = _pipeline(root)
    before = _draw(pipeline, output_type="latent")
    pipeline.transformer.load_state_dict(model.state_dict())
    trained = _draw(pipeline, output_type="latent")
    pipeline.transformer = type(pipeline.transformer).from_pretrained(saved)
    reloaded = _draw(pipeline, output_type="latent")
    return {"reloaded": float((trained - reloaded).abs().max()), "untrained": float((trained - before).abs().max())}


def _pipeline(root: Path) -> Any:
    from diffusers import DiffusionPipeline

    pipeline = DiffusionPipeline.from_pretrained(root)
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def _draw(pipeline: Any, output_type: str) -> Any:
    rows, columns = _SIZES[0]
    asked = {
        "prompt": _PROMPTS[0], "height": rows, "width": columns, "num_frames": 9, "num_inference_steps": 2,
        "guidance_scale": 1.0, "use_resolution_binning": False, "output_type": output_type, "return_dict": False,
        "generator": torch.Generator().manual_seed(0),
    }  # fmt: skip
    taken = inspect.signature(pipeline.__call__).parameters
    return pipeline(**{key: value for key, value in asked.items() if key in taken})[0]


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4:])
