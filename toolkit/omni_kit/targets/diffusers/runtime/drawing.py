"""The candidate's side of a sampler: the ported pipeline, with the converted model and the same noise."""

import importlib
import inspect
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import wraps
from pathlib import Path
from typing import Any

import torch
from torch import nn

from omni_kit.targets.diffusers.runtime.changing import (
    LATENTS_SCALES,
    Change,
    Tiled,
    Turned,
    Undivided,
    anywhere,
    otherwise,
)
from omni_kit.targets.diffusers.runtime.side import ConvertedBuilder
from omni_kit.targets.diffusers.runtime.standins import KnownPrompts, autoencoder_of, handed_to
from omni_kit.targets.provenance import ALONE, SCHEDULER
from omni_kit.targets.references.calls import RecordedCalls, asking
from omni_kit.targets.references.stepping import answer, rows_alike, runs_alone, seeded
from omni_kit.targets.replacing import replaced
from omni_kit.targets.sides import StageFault
from omni_kit.toys.batches.sampling import LABELS, LATENTS, Drawn, drawn_of
from omni_kit.toys.tensors import Tensors
from omni_kit.upstream.repositories.recorded import JOINED, NEGATIVE

_SIGN, _LATE = "answer-sign", "levels-one-late"
_STEP, _CLASS, _SHIFT = "timestep", "_class_name", "shift"
_FORMULA, _SIGMAS, _SWAPPED, _UNIT, _NOISE, _ROWS = (
    "guidance-formula", "sigma-shift", "prompt-and-negative-swapped", "timestep-unit", "latents-scale",
    "batch-expansion",
)  # fmt: skip
_TOKENIZER, _ENCODER, _VAE = "tokenizer", "text_encoder", "vae"
_SCALE = "guidance_scale"
_EMBEDS = ("prompt_embeds", "image_embeds")
_OPTIONAL = frozenset({*_EMBEDS, *(f"negative_{one}" for one in _EMBEDS), "negative_prompt", _SCALE})
"""Arguments that a pipeline without prompts, or without guidance, does not have."""
_MANY = tuple(f"num_{made}s_per_prompt" for made in ("image", "video", "waveform", "sample"))
_NO_PROMPTS = "prompts were not encoded ({}): embeddings for several images per prompt were passed"
_NO_AUTOENCODER = "latents were not decoded: the pipeline's autoencoder cannot be built small"


class DrawingBuilder(ConvertedBuilder):
    """Draws latents with the pipeline's own `__call__`; its model is the transformer."""

    def __init__(self) -> None:
        super().__init__()
        self._pipeline: Any = None
        self._alone = False
        self._prompts = KnownPrompts()
        self._notes: dict[str, None] = {}
        self._encodes: str | None = None
        self._joined: Mapping[str, Any] | None = None

    def open(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Imports the package, and the pipeline's class."""
        found = super().open(options)
        module = importlib.import_module(options["pipeline_module"])
        self._pipeline_class = getattr(module, options["pipeline_class"])
        return found

    def load(self, checkpoint: Path, dtype: str = "float32") -> nn.Module:
        """Return the converted transformer, in a pipeline with the scheduler that the config names."""
        import diffusers

        model = super().load(checkpoint, dtype)
        config = json.loads((checkpoint / "config.json").read_text(encoding="utf-8"))
        told, self._joined = dict(config[SCHEDULER]), config.get(JOINED)
        self._alone = told.pop(ALONE, False)
        name = told.pop(_CLASS)
        home = diffusers if hasattr(diffusers, name) else importlib.import_module(self._pipeline_class.__module__)
        scheduler = _in_double(getattr(home, name)(**told))
        taken = [name for name in inspect.signature(self._pipeline_class.__init__).parameters if name != "self"]
        vae = autoencoder_of(self._pipeline_class, int(getattr(model.config, "in_channels", 1)))
        parts = {_TOKENIZER: self._prompts, _ENCODER: self._prompts, _VAE: vae, "scheduler": scheduler}
        given = {name: parts.get(name) for name in taken} | {"transformer": model}
        self._pipeline, self._encodes = self._pipeline_class(**given), None
        self._pipeline.set_progress_bar_config(disable=True)
        return model

    def forward(self, model: Any, inputs: Tensors, loss_only: bool = False) -> Tensors:
        """Return every run, step by step."""
        found: Tensors = {}
        model.eval()
        for number, run in enumerate(drawn_of(inputs)):
            told = self._told(run)
            seeded(number)
            with asking(model, (LATENTS, _STEP), len(run.noise), self._joined) as asked, rows_alike(number):
                drawn = self._decoded(run) if run.decoded else self._drawn(run, told)
            found |= asked.named(run.name, drawn)
        return found | (self._stepped() if self._alone else {})

    def _stepped(self) -> Tensors:
        """Return the scheduler with a stand-in for the model."""
        found, scheduler = Tensors(), self._pipeline.scheduler
        draws = "generator" in inspect.signature(scheduler.step).parameters
        for number, run in enumerate(runs_alone()):
            seeded(number)
            asked, more = RecordedCalls(len(run.noise)), {"generator": None} if draws else {}
            scheduler.set_timesteps(run.steps)
            latents = run.noise * scheduler.init_noise_sigma
            for t in scheduler.timesteps:
                given = scheduler.scale_model_input(latents, t)
                asked.add(given, t)
                latents = scheduler.step(answer(given, t), t, latents, return_dict=False, **more)[0]
            found |= asked.named(run.name, latents)
        return found

    def notes(self) -> list[str]:
        """Return what it passed because the pipeline could not make it from stand-ins."""
        return list(self._notes)

    def _drawn(self, run: Drawn, told: Mapping[str, Any], output: str = "latent") -> torch.Tensor:
        """Return the pipeline's output for a run, with the prompts passed in this form."""
        sized = {}
        if (factor := getattr(self._pipeline, "vae_scale_factor", None)) is not None:
            sized = {"height": run.noise.shape[-2] * factor, "width": run.noise.shape[-1] * factor}
        drawn: torch.Tensor = self._pipeline(
            latents=run.noise.clone(), **sized, num_inference_steps=run.steps, output_type=output, return_dict=False,
            **self._conditions(run), **{name: one for name, one in (*told.items(), (_SCALE, run.scale))
                                        if name in self._taken or name not in _OPTIONAL},
        )[0]  # fmt: skip
        return drawn

    @property
    def _taken(self) -> Mapping[str, inspect.Parameter]:
        """The arguments of the pipeline's `__call__`; one without guidance takes no negative prompt."""
        return inspect.signature(self._pipeline_class.__call__).parameters

    def _conditions(self, run: Drawn) -> Mapping[str, torch.Tensor]:
        """Return the other inputs of the transformer, by the names that it has here."""
        found = {}
        for name, value in run.conditions.items():
            own = name.removeprefix(NEGATIVE)
            found[name.removesuffix(own) + self._names.get(own, own)] = value
        return found

    def _decoded(self, run: Drawn) -> torch.Tensor:
        """Return the autoencoder's input; without an autoencoder, the expected one."""
        vae = getattr(self._pipeline, _VAE, None)
        if vae is None:
            self._notes[_NO_AUTOENCODER] = None
            return run.answer(self._drawn(run, self._embedded(run)))
        with handed_to(vae, self._pipeline.vae_scale_factor) as handed:
            self._drawn(run, self._embedded(run), "pt")
        found = torch.cat(handed)
        return found.reshape(run.noise.shape) if len(found) != len(run.noise) else found  # frames, each by itself

    def _told(self, run: Drawn) -> Mapping[str, Any]:
        """Several prompts, where the pipeline encodes them as they are; else what they are embedded as."""
        if run.prompts == 1 or not run.text.is_floating_point() or "prompt_embeds" not in self._taken:
            return self._embedded(run)
        if self._encodes is None:
            self._encodes = self._unencoded(run)
        if self._encodes:
            self._notes[_NO_PROMPTS.format(self._encodes)] = None
            return self._embedded(run)
        return self._said(run, run.prompts)

    def _embedded(self, run: Drawn) -> Mapping[str, Any]:
        """Return the pipeline's arguments when nothing is left to encode."""
        if not run.text.is_floating_point():
            return {LABELS: run.text.tolist()}
        name = next((one for one in _EMBEDS if one in self._taken), _EMBEDS[0])
        return {name: run.text, f"negative_{name}": run.against}

    def _said(self, run: Drawn, prompts: int) -> Mapping[str, Any]:
        """Return the first prompts of a run, with as many pictures of each."""
        rows = slice(0, prompts * run.each, run.each)
        text, against = self._prompts.know(run.text[rows], "with"), self._prompts.know(run.against[rows], "against")
        return {"prompt": text, "negative_prompt": against, **dict.fromkeys(self._many(), run.each)}

    def _many(self) -> list[str]:
        """Return the pipeline's names of the argument for pictures per prompt."""
        return [name for name in _MANY if name in self._taken]

    def _unencoded(self, run: Drawn) -> str:
        """Return why a prompt does not lead to its text encoder's embedding; empty if it does."""
        if not self._many():
            return "it has no num_images_per_prompt argument"
        one = Drawn(run.name, run.noise[:1], run.text[:1], run.against[:1], 1, run.scale)
        try:
            seeded(0)
            said = self._drawn(one, self._said(one, 1))
        except Exception as error:  # whatever it raises for what is no real encoder
            return " ".join(f"{type(error).__name__}: {error}".split())[:120]
        seeded(0)
        return "" if torch.equal(said, self._drawn(one, self._embedded(one))) else "its encoding changes them"

    def faults(self, inputs: Tensors) -> Sequence[StageFault]:
        """Return the faults that the pipeline supports, each with the first stage that shows it."""
        call = self._pipeline_class.__call__
        found = []
        if any(f"negative_{one}" in self._taken for one in _EMBEDS):
            found.append(StageFault(_SWAPPED, "each has the other's embedding", ("step 1 latents",)))
        if otherwise(call, Turned()) is not None:
            found.append(StageFault(_FORMULA, "guidance scales from the wrong output", ("step 1 latents",)))
        if otherwise(call, Undivided()) is not None:
            found.append(
                StageFault(_UNIT, "the transformer receives the scheduler's unscaled timestep", ("step 0 time",))
            )
        if self._alone:
            found.append(StageFault(_SIGN, "the output's sign is flipped", ("step 1 latents", "final latents")))
            found.append(StageFault(_LATE, "each step uses the next step's noise levels", ("step 1 latents",)))
        if _SHIFT in self._pipeline.scheduler.config:
            found.append(StageFault(_SIGMAS, "sigmas are shifted twice as far", ("step 1 time",)))
        found.append(StageFault(_NOISE, "noise is halved before the first step", ("step 0 latents",)))
        if any(True for _ in self._places(_ROWS)) and not self._encodes:
            found.append(StageFault(_ROWS, "rows are repeated as a whole for each prompt", ("step 1 latents",)))
        if getattr(self._pipeline, _VAE, None) is not None:
            for scale, (what, _) in LATENTS_SCALES.items():
                if any(True for _ in self._places(scale)):
                    found.append(StageFault(scale, what, ("final latents",)))
        return found

    @contextmanager
    def mistaken(self, kind: str) -> Iterator[None]:
        """The pipeline makes that mistake; afterwards it does not."""
        with ExitStack() as stack:
            for owner, name, wrong in self._wrong(kind):
                stack.enter_context(replaced(owner, name, wrong))
            yield

    def _places(self, kind: str) -> Iterator[tuple[Any, str, Any]]:
        change: Callable[[], Change] = Tiled if kind == _ROWS else LATENTS_SCALES[kind][1]
        return anywhere({self._pipeline_class}, change)

    def _wrong(self, kind: str) -> Sequence[tuple[Any, str, Any]]:
        """Return the attributes to replace for a kind of fault: the object, the name and the new value."""
        cls, scheduler = self._pipeline_class, self._pipeline.scheduler
        if kind == _ROWS or kind in LATENTS_SCALES:
            return list(self._places(kind))
        if kind in (_FORMULA, _UNIT):
            return [(cls, "__call__", otherwise(cls.__call__, Turned() if kind == _FORMULA else Undivided()))]
        if kind == _SIGMAS:
            shifted = type(scheduler)(**{**scheduler.config, _SHIFT: 2 * scheduler.config[_SHIFT]})
            return [(self._pipeline, "scheduler", shifted)]
        if kind in (_SIGN, _LATE):
            step = type(scheduler).step
            return [(type(scheduler), "step", _turned(step) if kind == _SIGN else _late(step))]
        if kind == _NOISE:
            return [(cls, "prepare_latents", _halved(cls.prepare_latents))]
        return [(cls, "__call__", _swapped(cls.__call__))]


def _swapped(right: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(right)
    def call(self: Any, **given: Any) -> Any:
        pairs = [(name, f"negative_{name}") for name in ("prompt", *_EMBEDS) if f"negative_{name}" in given]
        other = {name: given[of] for one, two in pairs for name, of in ((one, two), (two, one))}
        return right(self, **{**given, **other})

    return call


def _turned(right: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, model_output, *args, **kwargs: right(self, -model_output, *args, **kwargs)


def _late(right: Callable[..., Any]) -> Callable[..., Any]:
    def step(self: Any, *args: Any, **kwargs: Any) -> Any:
        along = self._along
        with replaced(self, "_along", [*along[1:], along[-1]]):
            return right(self, *args, **kwargs)

    return step


def _halved(right: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args, **kwargs: right(*args, **kwargs) / 2


def _in_double(scheduler: Any) -> Any:
    """Return a scheduler with its products of alphas in double precision.

    Near 1 they lose four digits in float32, and authors' samplers lose other ones: these are measured by rounding their
    tables.
    """
    kept, betas = (getattr(scheduler, name, None) for name in ("alphas_cumprod", "betas"))
    if isinstance(kept, torch.Tensor) and isinstance(betas, torch.Tensor):
        exact = torch.cumprod(1 - betas.double(), 0)
        if torch.allclose(exact.float(), kept, rtol=1e-5, atol=1e-7):  # not rescaled
            scheduler.alphas_cumprod = exact
    return scheduler
