"""The candidate's side of a sampler: the ported pipeline, with the converted model and the same noise."""

import importlib
import inspect
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from torch import nn

from omni_kit.targets.diffusers.runtime.changing import Turned, Undivided, otherwise
from omni_kit.targets.diffusers.runtime.side import ConvertedBuilder
from omni_kit.targets.recorded import ALONE, SCHEDULER
from omni_kit.targets.references.calls import Asked, asking
from omni_kit.targets.references.stepping import answer, runs_alone, seeded
from omni_kit.targets.sides import StageFault
from omni_kit.toys.feeds.sampling import LATENTS, drawn_of
from omni_kit.toys.tensors import Tensors

_SIGN, _LATE = "answer-sign", "levels-one-late"
_STEP, _CLASS, _SHIFT = "timestep", "_class_name", "shift"
_FORMULA, _SIGMAS, _SWAPPED, _UNIT, _NOISE = (
    "guidance-formula", "sigma-shift", "prompt-and-negative-swapped", "timestep-unit", "latents-scale"
)  # fmt: skip


class DrawingBuilder(ConvertedBuilder):
    """Draws latents with the pipeline's own `__call__`; its model is the transformer."""

    def __init__(self) -> None:
        super().__init__()
        self._pipeline: Any = None
        self._alone = False

    def open(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Imports the package, and the pipeline's class."""
        found = super().open(options)
        module = importlib.import_module(options["pipeline_module"])
        self._pipeline_class = getattr(module, options["pipeline_class"])
        return found

    def load(self, checkpoint: Path, dtype: str = "float32") -> nn.Module:
        """The converted transformer, in a pipeline with the scheduler that the config names."""
        import diffusers

        model = super().load(checkpoint, dtype)
        told = dict(json.loads((checkpoint / "config.json").read_text(encoding="utf-8"))[SCHEDULER])
        self._alone = told.pop(ALONE, False)
        name = told.pop(_CLASS)
        home = diffusers if hasattr(diffusers, name) else importlib.import_module(self._pipeline_class.__module__)
        scheduler = getattr(home, name)(**told)
        parts = {name: None for name in inspect.signature(self._pipeline_class.__init__).parameters if name != "self"}
        self._pipeline = self._pipeline_class(**{**parts, "transformer": model, "scheduler": scheduler})
        self._pipeline.set_progress_bar_config(disable=True)
        return model

    def forward(self, model: Any, inputs: Tensors, loss_only: bool = False) -> Tensors:
        """Every run, step by step."""
        found: Tensors = {}
        model.eval()
        factor = self._pipeline.vae_scale_factor
        for number, run in enumerate(drawn_of(inputs)):
            seeded(number)
            rows, columns = run.noise.shape[-2:]
            with asking(model, (LATENTS, _STEP), len(run.noise)) as asked:
                latents = self._pipeline(
                    latents=run.noise.clone(), prompt_embeds=run.text, negative_prompt_embeds=run.against,
                    height=rows * factor, width=columns * factor, num_inference_steps=run.steps,
                    guidance_scale=run.scale, output_type="latent", return_dict=False,
                )[0]  # fmt: skip
            found |= asked.named(run.name, latents)
        return found | (self._stepped() if self._alone else {})

    def _stepped(self) -> Tensors:
        """The scheduler with a stand-in for the model."""
        found, scheduler = Tensors(), self._pipeline.scheduler
        draws = "generator" in inspect.signature(scheduler.step).parameters
        for number, run in enumerate(runs_alone()):
            seeded(number)
            asked, more = Asked(len(run.noise)), {"generator": None} if draws else {}
            scheduler.set_timesteps(run.steps)
            latents = run.noise * scheduler.init_noise_sigma
            for t in scheduler.timesteps:
                given = scheduler.scale_model_input(latents, t)
                asked.add(given, t)
                latents = scheduler.step(answer(given, t), t, latents, return_dict=False, **more)[0]
            found |= asked.named(run.name, latents)
        return found

    def faults(self, inputs: Tensors) -> Sequence[StageFault]:
        """Those that the pipeline has a place for, each with the first stage at which it can be seen."""
        found = [StageFault(_SWAPPED, "each has the other's embedding", ("step 1 latents",))]
        call = self._pipeline_class.__call__
        if otherwise(call, Turned()) is not None:
            found.append(StageFault(_FORMULA, "the scale goes on from the wrong answer", ("step 1 latents",)))
        if otherwise(call, Undivided()) is not None:
            found.append(StageFault(_UNIT, "the transformer is told the scheduler's own step", ("step 0 time",)))
        if self._alone:
            found.append(
                StageFault(_SIGN, "the answer is taken the wrong way round", ("step 1 latents", "final latents"))
            )
            found.append(StageFault(_LATE, "each step is between the levels of the next", ("step 1 latents",)))
        if _SHIFT in self._pipeline.scheduler.config:
            found.append(StageFault(_SIGMAS, "sigmas are shifted twice as far", ("step 1 time",)))
        found.append(StageFault(_NOISE, "noise is halved before the first step", ("step 0 latents",)))
        return found

    @contextmanager
    def mistaken(self, kind: str) -> Iterator[None]:
        """The pipeline makes that mistake; afterwards it does not."""
        owner, name, wrong = self._wrong(kind)
        with patch.object(owner, name, wrong):
            yield

    def _wrong(self, kind: str) -> tuple[Any, str, Any]:
        """Whose attribute becomes what."""
        cls, scheduler = self._pipeline_class, self._pipeline.scheduler
        if kind in (_FORMULA, _UNIT):
            return cls, "__call__", otherwise(cls.__call__, Turned() if kind == _FORMULA else Undivided())
        if kind == _SIGMAS:
            shifted = type(scheduler)(**{**scheduler.config, _SHIFT: 2 * scheduler.config[_SHIFT]})
            return self._pipeline, "scheduler", shifted
        if kind in (_SIGN, _LATE):
            step = type(scheduler).step
            return type(scheduler), "step", _turned(step) if kind == _SIGN else _late(step)
        if kind == _NOISE:
            return cls, "prepare_latents", _halved(cls.prepare_latents)
        return cls, "__call__", _swapped(cls.__call__)


def _swapped(right: Callable[..., Any]) -> Callable[..., Any]:
    def call(self: Any, prompt_embeds: Any, negative_prompt_embeds: Any, **given: Any) -> Any:
        return right(self, prompt_embeds=negative_prompt_embeds, negative_prompt_embeds=prompt_embeds, **given)

    return call


def _turned(right: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, model_output, *args, **kwargs: right(self, -model_output, *args, **kwargs)


def _late(right: Callable[..., Any]) -> Callable[..., Any]:
    def step(self: Any, *args: Any, **kwargs: Any) -> Any:
        along = self._along
        with patch.object(self, "_along", [*along[1:], along[-1]]):
            return right(self, *args, **kwargs)

    return step


def _halved(right: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args, **kwargs: right(*args, **kwargs) / 2
