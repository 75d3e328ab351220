"""The reference side of a pipeline: diffusers, untouched. Its process never imports a target framework."""

import inspect
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import diffusers
import torch
from diffusers import DiffusionPipeline
from PIL import Image
from torch import nn

from omni_kit.documents import read_mapping
from omni_kit.errors import BadInput
from omni_kit.pysource.library import find_library
from omni_kit.targets.references.stages import noting
from omni_kit.targets.sides import NOT_COMPARED
from omni_kit.toys.batches.pipeline import (
    AS_IS,
    BARE,
    ENLARGED,
    LONGER,
    Change,
    PipelineBatchBuilder,
    Scenario,
    scenarios_of,
)
from omni_kit.toys.batches.protocol import BatchBuilder
from omni_kit.toys.configs.variants import Extent, Variants
from omni_kit.toys.pipelines import GIVE_ONE, toy_pipeline
from omni_kit.toys.pipelines.fitting import Changed
from omni_kit.toys.pipelines.parts import class_of, let_decode, save
from omni_kit.toys.pipelines.switches import switched
from omni_kit.toys.tensors import Tensors
from omni_kit.toys.width_errors import LENGTHS
from omni_kit.upstream.diffusers.calling import (
    FRAMES,
    call_arguments,
    frames_of,
    images_of,
    listed_images,
    media_of,
    prompt_keys,
    values_as,
)
from omni_kit.upstream.diffusers.defaults import images_needed
from omni_kit.upstream.diffusers.guidance import Guidance, guidance_of
from omni_kit.upstream.diffusers.local_pipelines import file_outside, outside_pipeline
from omni_kit.upstream.diffusers.pipelines import INDEX, Pipeline, find_pipeline
from omni_kit.upstream.diffusers.signatures import Argument

_SCALE = 4.0  # of guidance
_UNGUIDED = 1.0
_TOY = "toy_config.json"
_TRIED = slice(0, 3, 2)  # scenarios by which a toy's parts are fitted to each other: square, and guided and wide
_MANY = ("num_images_per_prompt", "num_videos_per_prompt")


def read_pipeline(class_name: str) -> Pipeline:
    """Read a pipeline of the installed diffusers, or of a file that imports from it."""
    library = find_library("diffusers")
    return outside_pipeline(class_name, library) or find_pipeline(library, class_name, {})


def asked(pipeline: Pipeline, guidance: Guidance, scenario: Scenario) -> dict[str, Any]:
    """Return the arguments of a pipeline's call for a scenario, but for those that only torch knows."""
    taken = call_arguments(pipeline)
    wanted: dict[str, Any] = {
        "prompt": _text(pipeline, scenario), "height": scenario.rows, "width": scenario.columns,
        "max_area": scenario.rows * scenario.columns, "num_inference_steps": _steps(taken, scenario.steps),
        **dict.fromkeys(FRAMES, scenario.frames),
    }  # fmt: skip
    if guidance.scale:
        wanted[guidance.scale] = _SCALE if scenario.guided else _UNGUIDED
        wanted["negative_prompt"] = scenario.against if scenario.guided else None
    return {name: value for name, value in wanted.items() if name in taken and value is not None}


def _text(pipeline: Pipeline, scenario: Scenario) -> str | list[str]:
    """Return a scenario's prompt; some pipelines accept objects of JSON only."""
    keys = prompt_keys(pipeline)
    return scenario.text if keys is None else json.dumps(dict.fromkeys(keys, scenario.text))


def _left_out(pipeline: Pipeline, scenarios: Sequence[Scenario]) -> Iterator[str]:
    """Yield the sorts of calls that a batch lacks."""
    if not images_of(pipeline) and all(one.pictures == 1 for one in scenarios):
        yield "several pictures in a call"
    if any(not one.images for one in scenarios):
        yield "images to start from"


def scenarios_for(pipeline: Pipeline, inputs: Tensors) -> list[Scenario]:
    """Return the scenarios of a batch; without those of several pictures where a call starts from images."""
    return [one for one in scenarios_of(inputs) if one.pictures == 1 or not images_of(pipeline)]


def _steps(taken: Mapping[str, Argument], wanted: int) -> int:
    """Return the number of steps, limited to the default: distilled pipelines refuse more."""
    default = taken["num_inference_steps"].default if "num_inference_steps" in taken else wanted
    return min(wanted, default) if isinstance(default, int) else wanted


def pictured(pipeline: Pipeline, scenario: Scenario) -> dict[str, Image.Image]:
    """Return the images that a pipeline starts from in a scenario, by argument, in the order of its call.

    A pipeline that needs none gets its first one where the scenario is guided, and none if it is not.
    """
    names = images_of(pipeline)
    needed = [names.index(name) for name in images_needed(pipeline)]
    plain = names[0] in media_of(pipeline) if names else False  # others want more than a picture, such as its place
    count = max(needed) + 1 if needed else int(scenario.guided and plain and scenario.images)
    return {name: _picture(scenario, number) for number, name in enumerate(names[:count])}


def called_with(pipeline: Pipeline, images: Mapping[str, Image.Image]) -> dict[str, Any]:
    """Return images as a pipeline's call accepts them: some arguments are lists."""
    listed = listed_images(pipeline)
    return {name: [image] if name in listed else image for name, image in images.items()}


def pictures_of(pipeline: Pipeline, scenario: Scenario) -> int:
    """Return how many pictures are made at once: one if the pipeline takes images, since many take several for one."""
    return 1 if images_of(pipeline) else scenario.pictures


def _values(answer: Any) -> torch.Tensor:
    """Return what a pipeline draws, from 0 to 1: channels in front of rows and columns; of several for each, all."""
    values = torch.as_tensor(torch.cat(answer) if isinstance(answer, list) else answer).float()
    return values if isinstance(answer, list | torch.Tensor) else values.movedim(-1, -3)  # an array


def _picture(scenario: Scenario, number: int) -> Image.Image:
    """Colours that change across the picture, and are others for each number."""
    drawn = torch.rand(1, 3, 4, 4, generator=torch.Generator().manual_seed(scenario.seed + number))
    size = (scenario.rows, scenario.columns)
    smooth = torch.nn.functional.interpolate(drawn, size=size, mode="bilinear", align_corners=True)[0]
    return Image.fromarray((smooth * 255).round().to(torch.uint8).movedim(0, -1).numpy())


class PipelineBuilder:
    """Loads a pipeline with diffusers' own loader and calls it; its model is the denoiser."""

    def __init__(self) -> None:
        self._pipeline: Any = None
        self._read: Any = None
        self._varies = False
        self._left_out: list[str] = []

    def open(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Quiets diffusers; says its version."""
        diffusers.utils.logging.set_verbosity_error()
        return {"library": "diffusers", "version": diffusers.__version__}

    def shapes(self, config_dir: Path) -> dict[str, list[int]]:
        """Return the shapes of the denoiser's tensors."""
        return {name: list(tensor.shape) for name, tensor in self.load(config_dir).state_dict().items()}

    def load(self, checkpoint: Path, dtype: str = "float32") -> nn.Module:
        """Return the whole pipeline; answers its denoiser."""
        return self._opened(checkpoint, getattr(torch, dtype))

    def save(self, model: Any, checkpoint: Path, out: Path) -> None:
        """A pipeline is served, and not trained."""
        raise BadInput("pipelines are compared while serving: nothing is exported")

    def save_toy(self, model: Any, out: Path, layout: str) -> None:
        """Save the pipeline as it would be published."""
        save(self._pipeline, out)

    def make_toy(self, source: str, batch_builder: BatchBuilder) -> nn.Module:
        """Return the pipeline in a directory, as it is; of a class, a small one of random components.

        Args:
            source: a directory with model_index.json, the name of a class, or a toy_config.json of `variants`.

        Raises:
            BadInput: it is neither, or no small pipeline of that class can be made.
        """
        if not source:
            raise BadInput("its source is not recorded, so nothing can be run", GIVE_ONE)
        if Path(source, INDEX).is_file():
            return self._opened(Path(source), torch.float32)
        varied = Path(source).name == _TOY
        said: dict[str, Any] = read_mapping(Path(source)) if varied else {"class": source}
        self._read, self._varies = read_pipeline(said["class"]), True
        scenarios = scenarios_of(batch_builder.batch(None, lambda batch: batch))[_TRIED]
        self._pipeline, change = self._made(scenarios, said.get("changed"))
        if isinstance(batch_builder, PipelineBatchBuilder):
            batch_builder.change = batch_builder.change or change
        denoiser: nn.Module = getattr(self._pipeline, self._read.denoiser.name)
        return denoiser

    def _made(self, scenarios: Sequence[Scenario], changed: Changed | None) -> tuple[Any, Change]:
        """Return a small pipeline that draws all scenarios; if it cannot, larger or longer ones, or ones without its
        pictures.
        """
        finite = True

        def made(scenarios: Sequence[Scenario]) -> Any:
            def ask(pipeline: Any) -> None:
                nonlocal finite
                with torch.no_grad():
                    drawn = [_values(pipeline(**self._given(pipeline, scenario))[0]) for scenario in scenarios]
                finite = all(bool(one.isfinite().all()) for one in drawn)

            return toy_pipeline(self._read, ask, changed)

        try:
            found = made(scenarios), AS_IS
            for change in LONGER if frames_of(self._read) and not finite else ():
                with suppress(BadInput):
                    longer = made([*map(change, scenarios)]), change
                    return longer if finite else found
            return found
        except BadInput as error:
            without = BARE if images_of(self._read) and not images_needed(self._read) else ()
            for change in ENLARGED if LENGTHS.search(error.message) else without:
                with suppress(BadInput):
                    return made([*map(change, scenarios)]), change
            raise

    def variants(self, model: Any, batch_builder: BatchBuilder, extent: Extent = Extent.apart) -> Variants:
        """Return the toy variants: each switch that distinguishes distilled and guided checkpoints, turned."""
        found = switched(self._read, self._pipeline) if self._varies and extent is Extent.apart else ()
        name = self._read.cls.node.name
        return Variants({what: {"class": name, "changed": changed} for what, changed in found})

    def forward(self, model: Any, inputs: Tensors, loss_only: bool = False) -> Tensors:
        """Return every scenario, stage by stage."""
        found: Tensors = {}
        scenarios = scenarios_for(self._read, inputs)
        self._left_out = [*_left_out(self._read, scenarios)]
        for scenario in scenarios:
            found |= self._called(model, scenario)
        return found

    def notes(self) -> list[str]:
        """Return what is not compared because upstream does not draw it."""
        return [f"{NOT_COMPARED}: {one}, for which upstream raises" for one in self._left_out]

    def _opened(self, directory: Path, dtype: torch.dtype) -> nn.Module:
        outside = self._read is not None and file_outside(self._read) is not None
        cls = class_of(self._read) if outside else DiffusionPipeline
        self._pipeline = cls.from_pretrained(directory, torch_dtype=dtype)
        self._pipeline.set_progress_bar_config(disable=True)
        if not outside:
            self._read = read_pipeline(type(self._pipeline).__name__)
        for one in self._read.components:
            if one.role == "autoencoder":
                let_decode(getattr(self._pipeline, one.name))
        denoiser: nn.Module = getattr(self._pipeline, self._read.denoiser.name)
        return denoiser

    @torch.no_grad()
    def _called(self, model: Any, scenario: Scenario) -> Tensors:
        guidance = guidance_of(self._read)
        with noting(type(model), type(self._pipeline.scheduler)) as noted:
            answer = self._pipeline(**self._given(self._pipeline, scenario))
        picture = _values(answer[0])
        picture = picture if frames_of(self._read) else picture.flatten(0, -4)
        return noted.named(scenario.name, guidance.together, guidance.negative_first, picture)

    def _given(self, pipeline: Any, scenario: Scenario) -> dict[str, Any]:
        """Return all that its call is given, of what it takes."""
        images, pictures = pictured(self._read, scenario), pictures_of(self._read, scenario)
        seeds = range(scenario.seed, scenario.seed + scenario.prompts * pictures)
        generators = [torch.Generator("cpu").manual_seed(seed) for seed in seeds]
        given = asked(self._read, guidance_of(self._read), scenario) | dict.fromkeys(_MANY, pictures)
        given |= called_with(self._read, images)
        given["generator"] = generators[0] if len(generators) == 1 else generators
        given |= {"output_type": values_as(self._read), "return_dict": False, "use_resolution_binning": False}
        taken = inspect.signature(type(pipeline).__call__).parameters
        return {name: value for name, value in given.items() if name in taken}
