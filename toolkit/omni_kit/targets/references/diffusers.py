"""The reference side of a diffusion transformer: diffusers, untouched. Its process never imports a target framework."""

import inspect
import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

import diffusers
import torch
from diffusers import DiffusionPipeline, ModelMixin
from torch import nn

from omni_kit.documents import read_mapping
from omni_kit.errors import BadInput, in_short
from omni_kit.isolation.failures import one_line
from omni_kit.targets.references.adapters import put_adapter, put_into_pipeline, put_new_adapter
from omni_kit.targets.references.pipelines import called_with, pictured, read_pipeline
from omni_kit.toys.batches.denoiser import (
    TARGET,
    answer,
    as_arguments,
    ask,
    denoised,
    long_inputs,
    prediction_of,
    samples_of,
)
from omni_kit.toys.batches.pipeline import Scenario
from omni_kit.toys.batches.protocol import BatchBuilder, CallScenario
from omni_kit.toys.batches.scenarios import answered_whole
from omni_kit.toys.configs.denoiser import constructor_defaults, toy_denoiser
from omni_kit.toys.configs.scaled import scaled_config
from omni_kit.toys.configs.variants import Extent, Source, Variants, chosen
from omni_kit.toys.tensors import Tensors
from omni_kit.toys.weights import fill
from omni_kit.upstream.transformers.fields import ConfigField, FieldsRead

_SHARDS = 3  # a toy checkpoint has an index, as a real one


class DiffusersBuilder:
    """Builds, loads and saves with diffusers' own classes."""

    def __init__(self) -> None:
        self._device = "cpu"
        self._kept: list[str] = []

    def open(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Quiets diffusers; says its version."""
        self._device = options.get("device", "cpu")
        diffusers.utils.logging.set_verbosity_error()
        return {"library": "diffusers", "version": diffusers.__version__}

    def shapes(self, config_dir: Path) -> dict[str, list[int]]:
        """Build the model on the meta device, where nothing is stored."""
        config = json.loads((config_dir / "config.json").read_text(encoding="utf-8"))
        with torch.device("meta"):
            model = _class(config["_class_name"]).from_config(config)
        return {name: list(tensor.shape) for name, tensor in model.state_dict().items()}

    def load(self, checkpoint: Path, dtype: str = "float32") -> nn.Module:
        """Load with diffusers's own loader.

        Raises:
            BadInput: it reports keys that are missing, unexpected or of another shape.
        """
        config = json.loads((checkpoint / "config.json").read_text(encoding="utf-8"))
        if "_class_name" not in config:
            raise BadInput(f"{checkpoint.name}/config.json has no _class_name: diffusers did not write it")
        model, info = _class(config["_class_name"]).from_pretrained(
            checkpoint, torch_dtype=getattr(torch, dtype), output_loading_info=True
        )
        if problems := {what: sorted(map(str, names)) for what, names in info.items() if names}:
            what, names = next(iter(problems.items()))
            raise BadInput(f"diffusers loads {checkpoint.name} with {what} ({len(names)}): {', '.join(names[:4])}")
        self._kept = list(model._keep_in_fp32_modules or []) if dtype != "float32" else []
        return self._placed(model)

    def save(self, model: Any, checkpoint: Path, out: Path) -> None:
        """Exports as upstream publishes its checkpoints."""
        self.save_toy(model, out, "hub")

    def save_toy(self, model: Any, out: Path, layout: str) -> None:
        """diffusers publishes the names that its models have: both layouts are one."""
        size = sum(tensor.numel() * tensor.element_size() for tensor in model.state_dict().values())
        model.save_pretrained(out, max_shard_size=max(1, size // _SHARDS))

    def forward(self, model: Any, inputs: Tensors, loss_only: bool = False) -> Tensors:
        """Low precision begins with what goes in, save in the modules that diffusers keeps in float32."""
        cast_ = {name: t.to(model.dtype) if t.is_floating_point() else t for name, t in inputs.items()}
        return denoised(samples_of(cast_), lambda sample: ask(model, sample))

    def answer(self, model: Any, way: CallScenario) -> Tensors:
        """Predictions and the loss, with gradients where they are asked for."""
        return answered_whole(model, way, lambda: self.forward(model, way.inputs))

    def variants(self, model: Any, batch_builder: BatchBuilder, extent: Extent = Extent.apart) -> Variants:
        """Of the arguments of its constructor, each of which says something of what it computes."""
        toy = {key: value for key, value in dict(model.config).items() if not key.startswith("_")}
        made = type(model)
        source = Source(toy, FieldsRead({name: ConfigField(name) for name in toy}, frozenset(), frozenset()))

        def accepts(values: Mapping[str, Any]) -> str:
            try:
                built = made.from_config(values)
                batch = batch_builder.batch(built, lambda batch: self.forward(built, batch, loss_only=True))
                self.forward(built, batch, loss_only=True)
            except Exception as error:  # upstream's, whatever it raises
                return one_line(error)
            return ""

        found = chosen(source, accepts, extent)
        named = {"_class_name": made.__name__}
        found.configs = {name: {**named, **config} for name, config in found.configs.items()}
        return found

    def batch_loss(self, model: nn.Module, samples: Sequence[Mapping[str, Any]]) -> tuple[torch.Tensor, float]:
        """Return the mean of the squared errors of the samples, one at a time, from the trainer's own targets."""
        taken = inspect.signature(type(model).forward).parameters
        losses = []
        for sample in samples:
            target = sample[TARGET].to(self._device).float()
            given = {
                name: self._fed(value, model) for name, value in sample.items() if name in taken and value is not None
            }
            plain = {"return_dict": False} if "return_dict" in taken else {}
            found = prediction_of(cast(Any, model)(**given, **plain)).float()
            # What comes behind the target's channels is a variance, which is not trained.
            found = found if found.shape == target.shape else found[:, : target.shape[1]]
            losses.append(nn.functional.mse_loss(found, target))
        return torch.stack(losses).mean(), float(len(samples))

    def use(self, model: nn.Module, checkpoint: Path) -> str:
        """Draw with the pipeline that the checkpoint is in, from pictures where it needs them."""
        pipeline = DiffusionPipeline.from_pretrained(checkpoint.parent, **{checkpoint.name: model.eval()})
        pipeline.to(self._device)
        pipeline.set_progress_bar_config(disable=True)
        asked: dict[str, Any] = {
            "prompt": "a red square", "negative_prompt": "", "height": 64, "width": 64, "num_frames": 9,
            "num_inference_steps": 2, "output_type": "np", "use_resolution_binning": False,
        }  # fmt: skip
        read = read_pipeline(type(pipeline).__name__)
        asked |= called_with(read, pictured(read, Scenario(64, 64, guided=False, prompt=0)))
        taken = inspect.signature(pipeline.__call__).parameters
        try:
            with torch.no_grad():
                pipeline(**{name: value for name, value in asked.items() if name in taken})
        except (AttributeError, RuntimeError, TypeError, ValueError) as error:
            return in_short(error)
        return ""

    def adapt_anew(self, model: nn.Module, adapter: Path, weights: Tensors) -> bool:
        """By peft; see `TrainsPlainly.adapt_anew`."""
        return put_new_adapter(model, adapter, weights)

    def adapt(self, model: nn.Module, adapter: Path, checkpoint: Path) -> int:
        """By the pipeline's `load_lora_weights` where it has one, and by peft; the smaller count of tensors.

        Raises:
            MissingRequirement: peft is not installed.
        """
        pipeline = DiffusionPipeline.from_pretrained(checkpoint.parent)
        taken = put_adapter(model, adapter)
        if not hasattr(pipeline, "load_lora_weights"):
            return taken
        part = getattr(pipeline, checkpoint.name)
        return min(taken, put_into_pipeline(pipeline, part, checkpoint.name, adapter))

    def sized(self, config_dir: Path, dtype: str) -> nn.Module:
        """Return a model of a config, as its classes begin it; float32 stays where diffusers' loader keeps it."""
        config = json.loads((config_dir / "config.json").read_text(encoding="utf-8"))
        torch.manual_seed(0)
        with torch.device(self._device):
            model = _class(config["_class_name"]).from_config(config).to(getattr(torch, dtype))
        kept = set(model._keep_in_fp32_modules or [])
        for name, parameter in model.named_parameters():
            if not kept.isdisjoint(name.split(".")):
                parameter.data = parameter.data.float()
        return self._placed(model)

    def scaled(self, source: str, size: int, out: Path) -> int:
        """Write the config of a model of a size; of a toy, or a class, from its constructor's defaults.

        Raises:
            BadInput: diffusers has no such class.
        """
        name, config = _whole_of(source)
        if size:
            config = scaled_config(config, size, partial(_parameters, name))
        out.mkdir(parents=True, exist_ok=True)
        (out / "config.json").write_text(json.dumps({"_class_name": name, **config}), encoding="utf-8")
        return _parameters(name, config)

    def inputs(self, model: nn.Module, sequences: int, length: int) -> Tensors:
        """Noisy latents of about `length` patches, conditions and targets; see `long_inputs`."""
        return long_inputs(model, sequences, length)

    def batch(self, model: nn.Module, inputs: Tensors) -> Mapping[str, Any]:
        """Return all samples in the dtype of the model: `arguments` of its calls, and the `samples` with their
        targets.
        """
        dtype = cast(Any, model).dtype
        samples = samples_of({name: one.to(dtype) if one.is_floating_point() else one for name, one in inputs.items()})
        return {"arguments": [as_arguments(sample) for sample in samples], "samples": samples}

    def loss(self, model: nn.Module, batch: Mapping[str, Any]) -> torch.Tensor:
        """Return the mean squared error of velocities, a sample at a time."""
        answers = iter([answer(model, given) for given in batch["arguments"]])
        return denoised(batch["samples"], lambda sample: next(answers))["loss"]

    def notes(self) -> list[str]:
        """Return how the last call deviated from normal use."""
        return [f"in low precision diffusers keeps {', '.join(self._kept)} in float32"] if self._kept else []

    def make_toy(self, source: str, batch_builder: BatchBuilder) -> nn.Module:
        """Return a toy with deterministic weights, float32, in training mode.

        Args:
            source: a class of diffusers, the path of a config.json with `_class_name` (complete or partial), or that
                of a toy_config.json, which is used as it is.

        Raises:
            BadInput: diffusers has no such class.
        """
        torch.manual_seed(0)
        name, config = _toy_of(source)
        placed = self._placed(_class(name).from_config(config))
        fill(placed)
        return placed

    def _here(self, value: Any) -> Any:
        """Return a value with its tensors on the device of the model, those in lists, too."""
        if isinstance(value, torch.Tensor):
            return value.to(self._device)
        return [self._here(one) for one in value] if isinstance(value, list | tuple) else value

    def _fed(self, value: Any, model: nn.Module) -> Any:
        """Move a value as `_here` does, features in the dtype of the model; vectors, such as timesteps, keep theirs."""
        if isinstance(value, list | tuple):
            return [self._fed(one, model) for one in value]
        features = isinstance(value, torch.Tensor) and value.is_floating_point() and value.dim() > 1
        return value.to(self._device, cast(Any, model).dtype) if features else self._here(value)

    def _placed(self, model: Any) -> nn.Module:
        return cast(nn.Module, model.train().to(self._device))


def _whole_of(source: str) -> tuple[str, dict[str, Any]]:
    """Return the class and the real config of a source: a file as it is, but of a toy what its class has by default."""
    path = Path(source)
    values = read_mapping(path) if path.is_file() else {"_class_name": source}
    name = str(values.get("_class_name"))
    known = {key: value for key, value in values.items() if not key.startswith("_")}
    return name, constructor_defaults(_class(name)) | ({} if path.name == "toy_config.json" else known)


def _parameters(name: str, config: Mapping[str, Any]) -> int:
    with torch.device("meta"):
        model = _class(name).from_config(dict(config))
    return sum(parameter.numel() for parameter in model.parameters())


def _toy_of(source: str) -> tuple[str, dict[str, Any]]:
    """Return the class and the config of a toy."""
    path = Path(source)
    if not path.is_file():
        return source, toy_denoiser(constructor_defaults(_class(source)))
    values = read_mapping(path)
    name = str(values.get("_class_name"))
    known = {key: value for key, value in values.items() if not key.startswith("_")}
    if path.name == "toy_config.json":
        return name, known
    return name, toy_denoiser({**constructor_defaults(_class(name)), **known})


def _class(name: str) -> Any:
    found = getattr(diffusers, name, None)
    if not (inspect.isclass(found) and issubclass(found, ModelMixin)):
        raise BadInput(f"diffusers {diffusers.__version__} has no model class '{name}'")
    return found
