"""The reference side of a pipeline: diffusers, untouched. Its process never imports a target framework."""

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import diffusers
import torch
from torch import nn

from omni_kit.errors import BadInput
from omni_kit.targets.references.stages import noting
from omni_kit.toys.feeds.pipeline import Scenario, scenarios_of
from omni_kit.toys.feeds.protocol import Feed
from omni_kit.toys.tensors import Tensors
from omni_kit.upstream.diffusers.calling import call_arguments
from omni_kit.upstream.diffusers.guidance import Guidance, guidance_of
from omni_kit.upstream.diffusers.pipelines import INDEX, Pipeline, find_pipeline
from omni_kit.upstream.library import find_library

_SCALE = 4.0  # of guidance
_UNGUIDED = 1.0
_MANY = ("num_images_per_prompt", "num_videos_per_prompt")


def read_pipeline(class_name: str) -> Pipeline:
    """What the installed diffusers says of a pipeline."""
    return find_pipeline(find_library("diffusers"), class_name, {})


def asked(pipeline: Pipeline, guidance: Guidance, scenario: Scenario) -> dict[str, Any]:
    """The arguments of a pipeline's call for a scenario, but for those that only torch knows."""
    taken = call_arguments(pipeline)
    wanted: dict[str, Any] = {
        "prompt": scenario.text, "height": scenario.rows, "width": scenario.columns,
        "num_inference_steps": scenario.steps, "num_frames": scenario.frames,
    }  # fmt: skip
    if guidance.scale:
        wanted[guidance.scale] = _SCALE if scenario.guided else _UNGUIDED
        wanted["negative_prompt"] = scenario.against if scenario.guided else None
    return {name: value for name, value in wanted.items() if name in taken and value is not None}


class PipelineBuilder:
    """Loads a pipeline with diffusers' own loader and calls it; its model is the denoiser."""

    def __init__(self) -> None:
        self._pipeline: Any = None

    def open(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Quiets diffusers; says its version."""
        diffusers.utils.logging.set_verbosity_error()
        return {"library": "diffusers", "version": diffusers.__version__}

    def shapes(self, config_dir: Path) -> dict[str, list[int]]:
        """Those of the denoiser."""
        return {name: list(tensor.shape) for name, tensor in self.load(config_dir).state_dict().items()}

    def load(self, checkpoint: Path, dtype: str = "float32") -> nn.Module:
        """The whole pipeline; answers its denoiser."""
        return self._opened(checkpoint, getattr(torch, dtype))

    def save(self, model: Any, checkpoint: Path, out: Path) -> None:
        """A pipeline is served, and not trained."""
        raise BadInput("pipelines are compared while they serve: nothing is exported")

    def save_toy(self, model: Any, out: Path, layout: str) -> None:
        """As it would be published."""
        self._pipeline.save_pretrained(out)

    def make_toy(self, source: str, feed: Feed) -> nn.Module:
        """The pipeline in a directory, as it is.

        Args:
            source: a directory with model_index.json.

        Raises:
            BadInput: it is none: a class has no weights to run.
        """
        if not source or not Path(source, INDEX).is_file():
            what = f"'{source}' is no pipeline with weights" if source else "it is not known what this was made from"
            raise BadInput(f"{what}: nothing can be run", "give a small pipeline of that class with --checkpoint DIR")
        return self._opened(Path(source), torch.float32)

    def forward(self, model: Any, inputs: Tensors, loss_only: bool = False) -> Tensors:
        """Every scenario, stage by stage."""
        found: Tensors = {}
        for scenario in scenarios_of(inputs):
            found |= self._called(model, scenario)
        return found

    def notes(self) -> list[str]:
        """Nothing is done otherwise than in real life."""
        return []

    def _opened(self, directory: Path, dtype: torch.dtype) -> nn.Module:
        self._pipeline = diffusers.DiffusionPipeline.from_pretrained(directory, torch_dtype=dtype)
        self._pipeline.set_progress_bar_config(disable=True)
        self._read = read_pipeline(type(self._pipeline).__name__)
        denoiser: nn.Module = getattr(self._pipeline, self._read.denoiser.name)
        return denoiser

    @torch.no_grad()
    def _called(self, model: Any, scenario: Scenario) -> Tensors:
        guidance = guidance_of(self._read)
        given = asked(self._read, guidance, scenario)
        seeds = range(scenario.seed, scenario.seed + scenario.pictures)
        generators = [torch.Generator("cpu").manual_seed(seed) for seed in seeds]
        given |= {"generator": generators, "output_type": "pt", "return_dict": False, "use_resolution_binning": False}
        given |= dict.fromkeys(_MANY, scenario.pictures)
        taken = inspect.signature(type(self._pipeline).__call__).parameters
        with noting(type(model), type(self._pipeline.scheduler)) as noted:
            answer = self._pipeline(**{name: value for name, value in given.items() if name in taken})
        picture = torch.as_tensor(answer[0]).float()
        return noted.named(scenario.name, guidance.together, guidance.negative_first, picture)
