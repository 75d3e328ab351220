"""The candidate's side: a pipeline in SGLang's engine, watched at the same places as diffusers' own."""

import inspect
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import diffusers
import torch
from torch import distributed, nn

from omni_kit.errors import BadInput
from omni_kit.pysource.library import find_library
from omni_kit.targets.references.pipelines import asked, pictured, pictures_of, read_pipeline, scenarios_for
from omni_kit.targets.references.stages import Noted, noting
from omni_kit.targets.replacing import replaced
from omni_kit.targets.sglang_diffusion.pipeline_dir import OUTSIDE
from omni_kit.targets.sglang_diffusion.runtime.engine import Opened, open_pipeline, prepare
from omni_kit.targets.sglang_diffusion.runtime.faults import Served, faults_of, made
from omni_kit.targets.sides import Mesh, StageFault
from omni_kit.toys.batches.pipeline import Scenario, scenarios_of
from omni_kit.toys.batches.protocol import Batch
from omni_kit.toys.tensors import Tensors
from omni_kit.upstream.diffusers.calling import FRAMES
from omni_kit.upstream.diffusers.denoising import Denoising
from omni_kit.upstream.diffusers.guidance import guidance_of
from omni_kit.upstream.diffusers.models import component_model
from omni_kit.upstream.diffusers.pipelines import Pipeline

_FILM = 5
_DIT, _WHOLE, _SHARES = "dit.py", "generation.py", "share_tokens("
_SCENARIOS = 2  # that several processes are compared in: without and with guidance
_BY_SIZE = ("max_area",)  # follows from a request's height and width
_OF_REQUESTS = dict.fromkeys(FRAMES, "num_frames")  # what a request calls it


class SGLangPipelineBuilder:
    """Loads a pipeline with SGLang's loaders and sends requests to it; its model is the denoiser."""

    def __init__(self) -> None:
        self._package: Path | None = None
        self._name = ""
        self._opened: dict[Path, Opened] = {}
        self._latest: Opened | None = None
        self._attended: Counter[str] = Counter()
        self._conditions: dict[str, str] = {}

    @cached_property
    def _read(self) -> Pipeline:
        """Upstream's pipeline: of the plugin's own file where it is outside diffusers."""
        file = self._package / f"{OUTSIDE}.py" if self._package is not None else Path()
        return read_pipeline(f"{file}::{self._name}" if file.is_file() else self._name)

    def open(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Remembers whose pipeline it is; it is imported with the checkpoint that it serves."""
        self._package, self._name = Path(options["path"]), options["pipeline_name"]
        return {"library": "sglang", "version": version("sglang")}

    def shapes(self, config_dir: Path) -> dict[str, list[int]]:
        """Return the shapes of the denoiser's tensors, which SGLang builds from the config that it finds."""
        return {name: list(tensor.shape) for name, tensor in self.load(config_dir).state_dict().items()}

    def load(self, checkpoint: Path, dtype: str = "float32") -> nn.Module:
        """Return the whole pipeline; answers its denoiser.

        Raises:
            BadInput: SGLang fell back to a class that is not its own.
        """
        if checkpoint not in self._opened:
            self._opened[checkpoint] = open_pipeline(checkpoint, self._package)
        from sglang.multimodal_gen.runtime.models.dits.base import BaseDiT  # once stand-ins are there

        self._latest = self._opened[checkpoint]
        model = self._denoiser()
        if not isinstance(model, BaseDiT):
            raise BadInput(f"SGLang fell back to {type(model).__module__}.{type(model).__name__}, not a BaseDiT")
        return cast(nn.Module, model)

    def save(self, model: Any, checkpoint: Path, out: Path) -> None:
        """A pipeline is served, and not trained."""
        raise BadInput("pipelines are compared while serving: nothing is exported")

    def forward(self, model: Any, inputs: Tensors, loss_only: bool = False) -> Tensors:
        """Return every scenario, stage by stage."""
        found: Tensors = {}
        for scenario in scenarios_for(self._read, inputs):
            found |= self._called(model, scenario)
        return found

    def meshes(self, level: str, config_dir: Path) -> Sequence[Mesh] | str:
        """Devices that share tokens, where the denoiser can, and devices that share guidance."""
        if level != "sp":
            return "a pipeline is served, not trained"
        if self._package is None or (self._package / _WHOLE).is_file():
            return "its whole call runs in one stage, which devices cannot share"
        prepare(self._package)  # processes that are forked from this one have imported SGLang
        text = (self._package / _DIT).read_text(encoding="utf-8")
        sizes = [(f"ulysses={count}", count, {"ulysses_degree": count, "sp_degree": count}) for count in (2, 4)]
        sizes.append(("sp=2", 2, {"sp_degree": 2}))  # as SGLang shares tokens where only a number of devices is given
        tokens = [Mesh(*size, _SCENARIOS) for size in sizes if _SHARES in text]
        guidance = Mesh("guidance=2", 2, {"cfg_parallel_degree": 2, "sp_degree": 1}, _SCENARIOS)
        return [Mesh("one process", 1, {}, _SCENARIOS), *tokens, guidance]

    def train(self, checkpoint: Path, batches: Sequence[Batch], mesh: Mesh) -> list[tuple[Tensors, Tensors]]:
        """Return the pictures of each scenario, made by the processes of a mesh; there are no gradients."""
        rank = distributed.get_rank() if distributed.is_initialized() else 0
        opened = open_pipeline(checkpoint, self._package, {"num_gpus": mesh.processes, **mesh.sizes}, rank)
        self._latest = self._opened[checkpoint] = opened
        found = []
        for batch in batches:
            scenarios = [one for part in batch for samples in part for one in scenarios_of(samples)]
            pictures = {one.name: self._noted(self._denoiser(), one)[1] for one in scenarios}
            found.append((pictures, Tensors()))
        return found

    def faults(self, inputs: Tensors) -> Sequence[StageFault]:
        """Mistakes in callbacks, steps and positions; conditions are those that the first scenario passes."""
        if (stage := _own_stage(self._require())) is not None:
            return self._faults_of(stage, scenarios_of(inputs)[0])
        config, handed = self._require().arguments.pipeline_config, dict[str, Any]()
        right = config.prepare_pos_cond_kwargs

        def watched(*args: Any, **kwargs: Any) -> Any:
            answer = right(*args, **kwargs)
            handed.update(answer or {})
            return answer

        with replaced(config, "prepare_pos_cond_kwargs", watched):
            noted, _ = self._noted(self._denoiser(), scenarios_of(inputs)[0])
        self._conditions = {key: name for key, value in handed.items() if (name := _argument(value, noted.calls[0]))}
        return list(faults_of(self._served()))

    def _faults_of(self, stage: Any, scenario: Scenario) -> list[StageFault]:
        """Return the faults of the pipeline's own stage: the denoiser's inputs except latents, step and switches."""
        noted, _ = self._noted(self._denoiser(), scenario)
        taken = inspect.signature(self._denoiser().forward).parameters
        apart = (next(iter(taken)), self._served().step)
        handed = {name for name, value in noted.calls[0].items() if value is not None and name not in apart}
        self._conditions = {name: name for name in sorted(handed) if taken[name].default is None}
        return list(faults_of(self._served()))

    def mistaken(self, kind: str) -> AbstractContextManager[None]:
        """See `Fallible`."""
        return made(self._served(), kind)

    def _denoiser(self) -> Any:
        return self._require().pipeline.get_module(self._read.denoiser.name)

    def _served(self) -> Served:
        opened, read = self._require(), self._read
        upstream = component_model(find_library("diffusers"), read.denoiser.class_name, {})
        scheduler = type(opened.pipeline.get_module("scheduler"))
        step = Denoising(read, upstream).step
        stage = _own_stage(opened)
        config = opened.arguments.pipeline_config
        return Served(config, self._denoiser(), scheduler, step, self._conditions, stage, _decodes(opened))

    def notes(self) -> list[str]:
        """Return the stubs of missing packages, and the classes that ran."""
        opened = self._require()
        lines = [
            f"a stub was imported for {name}, which is not installed and was not called" for name in opened.stand_ins
        ]
        classes = ", ".join(f"{name}: {_class(part)}" for name, part in sorted(opened.pipeline.modules.items()))
        attended = ", ".join(f"{count} times by {name}" for name, count in sorted(self._attended.items()))
        return [*lines, f"SGLang ran {classes}", f"SGLang's attention was called {attended or 'never'}"]

    def _require(self) -> Opened:
        if self._latest is None:
            raise BadInput("no checkpoint was loaded")
        return self._latest

    def _called(self, model: Any, scenario: Scenario) -> Tensors:
        noted, picture = self._noted(model, scenario)
        if picture.dim() == _FILM:
            picture = picture.movedim(1, 2)  # as diffusers has films: [batch, frames, channels, rows, columns]
        if not _denoises(self._require()):  # a stage of its own asks as upstream does
            guidance = guidance_of(self._read)
            return noted.named(scenario.name, guidance.together, guidance.negative_first, picture)
        # SGLang asks for the prompt first, and in a call of its own.
        return noted.named(scenario.name, together=False, negative_first=False, picture=picture)

    def _noted(self, model: Any, scenario: Scenario) -> tuple[Noted, torch.Tensor]:
        opened, read = self._require(), self._read
        given, pictures = asked(read, guidance_of(read), scenario), pictures_of(read, scenario)
        given = {_OF_REQUESTS.get(name, name): value for name, value in given.items() if name not in _BY_SIZE}
        upstream = getattr(diffusers, str(model.hf_config.get("_class_name") or read.denoiser.class_name))
        scheduler = type(opened.pipeline.get_module("scheduler"))
        with noting(upstream, scheduler) as noted, _counting(self._attended), TemporaryDirectory() as folder:
            images = pictured(read, scenario)
            paths = [str(Path(folder, f"{name}.png")) for name in images]
            for path, image in zip(paths, images.values(), strict=True):
                image.save(path)
            given |= {"image_path": paths} if paths else {}
            try:
                picture = opened.generate(**given, seed=scenario.seed, num_outputs_per_prompt=pictures)
            except Exception as error:
                raise RuntimeError(f"{error}{_withheld(upstream, noted)}") from error
        return noted, picture.float()


def _withheld(upstream: type, noted: Noted) -> str:
    """Return the arguments missing from the denoiser's last call, which may explain its failure."""
    if not noted.calls:
        return ""
    taken = list(inspect.signature(upstream.forward).parameters)[1:]  # type: ignore[attr-defined]
    lacking = [name for name in taken if noted.calls[-1].get(name) is None and name != "return_dict"]
    return f" (upstream's forward received nothing for {', '.join(lacking)})" if lacking else ""


def _argument(value: Any, asked: Mapping[str, Any]) -> str:
    """Return the argument of upstream's forward that got a value; empty if none did."""
    return next((name for name, other in asked.items() if value is not None and _same(value, other)), "")


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return isinstance(other, torch.Tensor) and one.shape == other.shape and torch.equal(one, other)
    if isinstance(one, (list, tuple)):
        return isinstance(other, (list, tuple)) and len(one) == len(other) and all(map(_same, one, other))
    return bool(one == other) and not isinstance(one, bool)


@contextmanager
def _counting(attended: Counter[str]) -> Iterator[None]:
    """Count the calls of SGLang's attention, by backend."""
    from sglang.multimodal_gen.runtime.layers.attention.layer import LocalAttention

    forward = LocalAttention.forward

    def counted(self: Any, *args: Any, **kwargs: Any) -> Any:
        attended[self.backend.name.lower()] += 1
        return forward(self, *args, **kwargs)

    LocalAttention.forward = counted
    try:
        yield
    finally:
        LocalAttention.forward = forward


def _denoises(opened: Opened) -> bool:
    """Return whether SGLang's own stage asks and guides."""
    from sglang.multimodal_gen.runtime.pipelines_core.stages import DenoisingStage

    return any(type(stage) is DenoisingStage for stage in opened.pipeline.stages)


def _own_stage(opened: Opened) -> Any:
    """Return the pipeline's own stage around SGLang's loop; None if there is none."""
    from sglang.multimodal_gen.runtime.pipelines_core.stages import DenoisingStage

    found = (one for one in opened.pipeline.stages if isinstance(one, DenoisingStage))
    return next((one for one in found if type(one) is not DenoisingStage), None)


def _decodes(opened: Opened) -> bool:
    """Return whether SGLang's own stage decodes."""
    from sglang.multimodal_gen.runtime.pipelines_core.stages import DecodingStage

    return any(type(stage) is DecodingStage for stage in opened.pipeline.stages)


def _class(part: Any) -> str:
    return f"{type(part).__module__}.{type(part).__name__}"
