"""The candidate side of a diffusion transformer that VeOmni wraps: fed as its trainer feeds it, saved by itself."""

import inspect
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn

from omni_kit.errors import MissingRequirement, in_short
from omni_kit.pysource.library import find_library
from omni_kit.targets.references.pipelines import read_pipeline
from omni_kit.targets.sides import KernelCall, KernelChoice, Mesh, TrainingRun
from omni_kit.targets.veomni.dit.attention_kernels import attention_faults, select_attention
from omni_kit.targets.veomni.dit.overfit_check import (
    GET,
    IN_FULL,
    MODEL,
    PROCESS,
    Fault,
    TrainingBatch,
    answers_off,
    faults_of,
    training_batch,
)
from omni_kit.targets.veomni.dit.runs import DitRuns
from omni_kit.targets.veomni.dit.small_pipeline import ConditionsNotTested, data_options, sizes_of, toy
from omni_kit.targets.veomni.dit.train import processors_of, shares_by_flash, shares_sequences, step
from omni_kit.targets.veomni.runtime import trainer
from omni_kit.targets.veomni.runtime.attention import SHARED, use_packed_attention
from omni_kit.targets.veomni.runtime.compiling import (
    SETTING,
    block_calls,
    select_wrapper_blocks,
    wrapper_blocks,
    wrapper_choice,
)
from omni_kit.targets.veomni.runtime.kernels import attention_choice, bind, bring_kernels, eager_operations
from omni_kit.targets.veomni.runtime.lora import Adapters
from omni_kit.targets.veomni.runtime.side import VeOmniBuilder
from omni_kit.targets.veomni.runtime.train import begin, in_low_precision, shard
from omni_kit.toys.batches.denoiser import TARGET, as_arguments, clean_latents, named, samples_of
from omni_kit.toys.batches.protocol import Batch, CallScenario
from omni_kit.toys.batches.scenarios import answered_whole
from omni_kit.toys.tensors import Tensors
from omni_kit.upstream.diffusers.checkpointing import lost_by_checkpointing
from omni_kit.upstream.diffusers.choosing import pipeline_of
from omni_kit.upstream.diffusers.classes import find_class
from omni_kit.upstream.diffusers.pipelines import Pipeline

ATTENTION = "attention"
_SHARDS = 3
_UNTRIED = "text conditioning not tested"
_LATENTS = "latents"
_NO_PIPELINE = (
    "diffusers has no pipeline that runs it on an autoencoder's latents, from a prompt or a prompt and pictures"
)
_OWN_LOSS = "the loss is VeOmni's flow-matching objective, written again for upstream, whose model has none"
_ONE_BY_ONE = "VeOmni's wrapper processes the samples of a batch one at a time, and so does upstream here"


class VeOmniDiffusionBuilder(VeOmniBuilder):
    """A wrapper over a class of diffusers, built through the same registry and loader as all models of VeOmni."""

    def save(self, model: Any, checkpoint: Path, out: Path) -> None:
        """By the wrapper's own save_pretrained: the trainers write file names that diffusers does not look for."""
        size = sum(tensor.numel() * tensor.element_size() for tensor in model.state_dict().values())
        model.save_pretrained(str(out), max_shard_size=max(1, size // _SHARDS))

    def forward(self, model: nn.Module, inputs: Tensors, loss_only: bool = False) -> Tensors:
        """Return all samples in one call, as lists, with their targets; the losses are added up as DiTTrainer does."""
        samples = samples_of(_cast(inputs, model))
        taken = inspect.signature(type(model).forward).parameters
        left = [name for name in _lists(samples) if name not in taken and name != _LATENTS]
        self._notes = [_ONE_BY_ONE, _OWN_LOSS, *(f"VeOmni's wrapper takes no {name}" for name in left)]
        answer = model(**_taken(model, samples))
        return named(answer.predictions, torch.stack(list(answer.loss.values())).sum())

    def answer(self, model: nn.Module, way: CallScenario) -> Tensors:
        """Predictions and the loss of the wrapper, with gradients where they are asked for.

        Raises:
            MissingRequirement: it is to checkpoint, the wrapper does not, and upstream's checkpointing loses something.
        """
        if way.checkpointing and not getattr(type(model), "supports_gradient_checkpointing", True):
            upstream = find_class(find_library("diffusers"), type(model).__name__)
            if upstream is not None and (lost := lost_by_checkpointing(upstream)):
                raise MissingRequirement(f"upstream's checkpointed call of a block leaves out {lost}")
        return answered_whole(model, way, lambda: self.forward(model, way.inputs))

    def hooks(self, checkpoint: Path, inputs: Tensors) -> tuple[list[str], list[Fault]]:
        """Return the kernel of attention; then the model of conditions, on a small pipeline, and the wrapper on what
        that passes on.

        Raises:
            MissingRequirement: there is no such pipeline.
        """
        if off := [(ATTENTION, said) for said in attention_faults(self._build(checkpoint, None, "meta"))]:
            return [ATTENTION], off
        with tempfile.TemporaryDirectory() as place:
            try:
                return [ATTENTION, GET, PROCESS, MODEL], self._taught(checkpoint, Path(place))
            except (ConditionsNotTested, ImportError, MissingRequirement) as reason:
                raise MissingRequirement(f"{_UNTRIED}: {reason}", getattr(reason, "hint", "")) from reason

    def _taught(self, checkpoint: Path, place: Path) -> list[Fault]:
        from veomni.models.loader import MODEL_CONFIG_REGISTRY, MODELING_REGISTRY

        built = self._build(checkpoint, None, "meta")
        key, read = built.config.condition_model_type, _pipeline(built)
        if read is None:
            raise ConditionsNotTested(_NO_PIPELINE)
        pipeline = toy(read.cls.node.name, place)
        denoiser = place / read.denoiser.name
        try:
            config = MODEL_CONFIG_REGISTRY[key]().from_pretrained(str(place), seed=1, **IN_FULL)
            condition = MODELING_REGISTRY[key]()._from_config(config)
            wrapper = self._build(denoiser, denoiser, self._device)
            batch = training_batch(condition, pipeline)
            found = list(faults_of(batch, condition, wrapper))
            if "from_pretrained" in vars(type(built)) and not found:
                found += [
                    (MODEL, f"of from_pretrained's model: {said}") for said in _loaded_by_itself(built, denoiser, batch)
                ]
            return found
        except ImportError:
            raise
        except Exception as error:  # the integration's own
            return [(GET, in_short(error))]

    def choices(self, config_dir: Path) -> Sequence[KernelChoice]:
        """Return what can compute attention, of which diffusers takes torch's; and compiled blocks."""
        bring_kernels()
        return [attention_choice(), *wrapper_choice(self._build(config_dir, None, "meta"))]

    def choose(self, model: nn.Module, chosen: Mapping[str, str]) -> nn.Module:
        """Selects attention in the wrapper's kernel; builds again where a wrapper has none."""
        config_dir, dtype, before = self._built
        kernels = {name: kernel for name, kernel in chosen.items() if name != SETTING}
        settings = eager_operations(**kernels)
        if select_attention(model, settings.attn_implementation):
            bind(model, settings)
        elif kernels != before:
            model = self._sized(config_dir, dtype, kernels)
        select_wrapper_blocks(model, chosen)
        return model

    def kernel_calls(self, model: nn.Module, setting: str, inputs: Tensors) -> Sequence[KernelCall | str]:
        """Of compiled blocks, next to the same blocks without the compiler; of attention, as every model of VeOmni."""
        if setting == SETTING:
            return block_calls(wrapper_blocks(model), partial(self._step, model, self.batch(model, inputs)))
        return super().kernel_calls(model, setting, inputs)

    def batch(self, model: nn.Module, inputs: Tensors) -> Mapping[str, Any]:
        """Return all samples in one call, as lists."""
        return _taken(model, samples_of(_cast(inputs, model)))

    def loss(self, model: nn.Module, batch: Mapping[str, Any]) -> torch.Tensor:
        """Return the sum of the wrapper's losses, as DiTTrainer adds them up."""
        return torch.stack(list(cast(Any, model)(**batch).loss.values())).sum()

    def lost_arguments(self, model: nn.Module, inputs: Tensors) -> list[str]:
        """None: DiTTrainer passes nothing to the loss, which is the wrapper's own."""
        return []

    def adapters(self, checkpoint: Path, inputs: Tensors, folder: Path) -> tuple[list[str], list[str]]:
        """By VeOmni's own LoRA, which its trainers use."""
        return Adapters(
            lambda: self.load(checkpoint), lambda model: self.forward(model, inputs)["loss"], folder
        ).tried()

    def training_runs(self, checkpoint: Path, where: Path) -> tuple[list[TrainingRun], list[str]]:
        """On the integration's own training files, data and launcher, with a small pipeline.

        Raises:
            MissingRequirement: no small pipeline can be made; why.
        """
        built = self._build(checkpoint, None, "meta")
        if (read := _pipeline(built)) is None:
            raise MissingRequirement(_NO_PIPELINE)
        try:
            pipeline = toy(read.cls.node.name, where / "pipeline")
            media = data_options(pipeline, sizes_of(pipeline)[0])
        except ConditionsNotTested as reason:
            raise MissingRequirement(f"no small pipeline could be made: {reason}") from reason
        trainer.prepare(f"{self._import_name}.train")
        signed = {
            "model_type": type(built.config).model_type,
            "condition_model_type": built.config.condition_model_type,
        }
        runs = DitRuns(
            self._path,
            self._training_files,
            self._import_name,
            where / "pipeline",
            read.denoiser.name,
            signed,
            where,
            media,
        )
        found = runs.planned()
        self._notes = trainer.said()
        return found

    def meshes(self, level: str, config_dir: Path) -> Sequence[Mesh] | str:
        """Return the meshes of a language model; in low precision if distributed attention supports no other."""
        model = self._build(config_dir, None, "meta")
        if level == "sp" and not shares_sequences(model):
            return "not applicable: the integration has no plan to share a sequence"
        found = super().meshes(level, config_dir)
        by_flash = not isinstance(found, str) and shares_by_flash(model, found[0])
        return in_low_precision(found) if by_flash and not isinstance(found, str) else found

    def train(self, checkpoint: Path, batches: Sequence[Batch], mesh: Mesh) -> list[tuple[Tensors, Tensors]]:
        """Return a step on each batch by the wrapper's own loss; see `Distributed.train`."""
        begin(mesh, self._device)
        alone = mesh.processes == 1
        weights, device = (checkpoint, self._device) if alone else (None, "meta")
        model = self._build(checkpoint, weights, device, mesh.dtype)
        if not alone and shares_by_flash(model, mesh):
            self._notes += _share_by_flash(model, self._device)
        ready = model.train() if alone else shard(model, checkpoint)
        return [step(ready, batch, self._device, lambda samples: _taken(model, samples)) for batch in batches]


def _pipeline(built: Any) -> Pipeline | None:
    """Return the pipeline that the module of the conditions imports; else the plainest around the wrapped class."""
    from diffusers import DiffusionPipeline
    from veomni.models.loader import MODELING_REGISTRY

    condition = MODELING_REGISTRY[built.config.condition_model_type]()
    held = vars(inspect.getmodule(condition) or object).values()
    names = {one.__name__ for one in held if isinstance(one, type) and issubclass(one, DiffusionPipeline)}
    names -= {DiffusionPipeline.__name__}
    return read_pipeline(min(names)) if names else pipeline_of(find_library("diffusers"), type(built).__name__)


def _loaded_by_itself(built: Any, denoiser: Path, batch: TrainingBatch) -> Iterator[str]:
    """Yield the faults of the model that the wrapper's own from_pretrained returns."""
    given = type(built).from_pretrained(str(denoiser)).train()
    yield from answers_off(batch, given)
    theirs, mine = ({type(one).__name__ for one in processors_of(model)} for model in (built, given))
    if theirs - mine:
        yield f"it attends with {', '.join(sorted(mine))}, and VeOmni's model with {', '.join(sorted(theirs))}"
    lowered = type(built).from_pretrained(str(denoiser), torch_dtype=torch.bfloat16)
    if not any(one.dtype == torch.bfloat16 for one in lowered.parameters()):
        yield f"its weights are {given.dtype} although torch_dtype is torch.bfloat16"


def _share_by_flash(model: Any, device: str) -> list[str]:
    """Selects VeOmni's flash attention after building, on a CPU with torch as its kernel; returns what to say."""
    for processor in processors_of(model):
        if (config := getattr(processor, "config", None)) is not None:
            processor.attn_implementation = config._attn_implementation = SHARED
    return [use_packed_attention(model)] if device == "cpu" else []


def _cast(inputs: Tensors, model: nn.Module) -> Tensors:
    """Latents, conditions and targets in the model's dtype."""
    dtype: torch.dtype = model.dtype  # type: ignore[assignment]
    return {name: one.to(dtype) if one.is_floating_point() else one for name, one in inputs.items()}


def _taken(model: nn.Module, samples: Sequence[Tensors]) -> dict[str, Any]:
    """Return the arguments that the wrapper's forward names."""
    taken = inspect.signature(type(model).forward).parameters
    return {name: values for name, values in _lists(samples).items() if name in taken}


def _lists(samples: Sequence[Tensors]) -> dict[str, list[Any]]:
    """Return the arguments as VeOmni's pipeline passes them: for each, the values of all samples."""
    fed = [{**as_arguments(sample), TARGET: sample[TARGET], _LATENTS: clean_latents(sample)} for sample in samples]
    return {name: [one[name] for one in fed] for name in fed[0]}
