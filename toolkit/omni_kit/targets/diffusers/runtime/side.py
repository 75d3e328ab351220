"""The candidate's side: the new model of diffusers, with weights converted from the authors' checkpoint each time."""

import importlib
import json
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn.attention import flex_attention

from omni_kit.convert.elements import Placement, placement_of
from omni_kit.errors import BadInput
from omni_kit.targets.diffusers.runtime.another_device import META, moved
from omni_kit.targets.diffusers.runtime.attention_backends import exercised
from omni_kit.targets.references import dense_flex
from omni_kit.targets.references.repositories import WEIGHTS, in_dtype
from omni_kit.toys.batches.denoiser import ask, denoised, samples_of
from omni_kit.toys.tensors import Tensors
from omni_kit.toys.weights import unfreeze

_NAMES = "_arguments"  # of the config: what the authors call an argument of forward -> what it is called here
_PUBLISHED = "diffusers"


class ConvertedBuilder:
    """Converts, builds, loads and saves with diffusers' own ways."""

    def __init__(self) -> None:
        self._device = "cpu"
        self._names: Mapping[str, str] = {}
        self._placements: dict[Path, Placement] = {}
        self._loaded: Placement | None = None

    def open(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Imports the package, or the checkout's diffusers, and finds the model and the conversion in it.

        Raises:
            BadInput: the package has no such model or no conversion.
        """
        self._device = options.get("device", "cpu")
        if self._device == "cpu":
            vars(flex_attention).update(dense_flex.FUNCTIONS)
        folder = Path(options["path"])
        sys.path.insert(0, options["sys_path"])
        diffusers = importlib.import_module("diffusers")  # only now: it may be the checkout's own
        diffusers.utils.logging.set_verbosity_error()
        file = Path(options["model_file"])
        module = "diffusers.models.transformers" if options["in_tree"] else folder.name
        self._class = _of(importlib.import_module(f"{module}.{file.stem}"), options["class_name"])
        self._convert = _conversion(folder, options["in_tree"])
        return {"library": "diffusers", "version": diffusers.__version__}

    def shapes(self, config_dir: Path) -> dict[str, list[int]]:
        """Return the shapes of the authors' tensors of which the model takes every element; what else it has,
        as it is.
        """
        placement = self._placement(config_dir)
        own = {name: list(tensor.shape) for name, tensor in self._empty(config_dir).state_dict().items()}
        fitting = {name for name, numbers in placement.numbers.items() if own.get(name) == list(numbers.shape)}
        lost = {*Placement(placement.shapes, {name: placement.numbers[name] for name in fitting}).lost()}
        taken = {name: list(shape) for name, shape in placement.shapes.items() if name not in lost}
        return taken | {name: shape for name, shape in own.items() if name not in fitting}

    def load(self, checkpoint: Path, dtype: str = "float32") -> nn.Module:
        """Return the model with the converted weights of the authors' checkpoint.

        Raises:
            BadInput: the conversion leaves names out, or makes others.
        """
        model = self._built(checkpoint)
        converted = dict(self._convert(load_file(checkpoint / WEIGHTS), config=model.config))
        missing, unexpected = model.load_state_dict(converted, strict=False)
        if missing or unexpected:
            what, names = ("misses", missing) if missing else ("makes unknown tensors", unexpected)
            raise BadInput(f"the conversion {what} ({len(names)}): {', '.join(names[:4])}")
        self._loaded = self._placement(checkpoint)
        return in_dtype(unfreeze(model), dtype).train().to(self._device)

    def blank(self, checkpoint: Path) -> nn.Module:
        """See `Blank`."""
        return cast(nn.Module, self._built(checkpoint).train().to(self._device))

    def save(self, model: Any, checkpoint: Path, out: Path) -> None:
        """By save_pretrained; what from_pretrained then gives is put back under the authors' names.

        Raises:
            BadInput: the config does not come back as it was.
        """
        model.save_pretrained(out / _PUBLISHED)
        again = self._class.from_pretrained(out / _PUBLISHED)
        if changed := _changed(model.config, again.config):
            raise BadInput(f"from_pretrained returns a different {changed} than was saved: register it in the config")
        state = self.as_upstream(again, dict(again.state_dict()))
        save_file({name: tensor.cpu().clone().contiguous() for name, tensor in state.items()}, out / WEIGHTS)
        (out / "config.json").write_text((checkpoint / "config.json").read_text(encoding="utf-8"), encoding="utf-8")

    def forward(self, model: Any, inputs: Tensors, loss_only: bool = False) -> Tensors:
        """Run each sample in a call of its own, as on the authors' side, with the argument names of this side."""
        cast_ = {name: t.to(model.dtype) if t.is_floating_point() else t for name, t in inputs.items()}
        return denoised(samples_of(cast_), lambda sample: ask(model, self._named(sample)))

    def hooks(self, checkpoint: Path, inputs: Tensors) -> tuple[list[str], list[tuple[str, str]]]:
        """See `Hooked`: what diffusers does with the attention of a model, and a move to another device."""
        model = self.load(checkpoint)
        sample = self._named({name: tensor.to(self._device) for name, tensor in samples_of(inputs)[0].items()})
        with torch.no_grad():
            called, wrong = exercised(model, lambda: ask(model, sample))
        elsewhere = {name: tensor.to(META) for name, tensor in sample.items()}
        more, mixed = moved(model, lambda: ask(model, elsewhere))
        return [*called, *more], [*wrong, *mixed]

    def notes(self) -> list[str]:
        """Same behaviour as in production."""
        return []

    def as_upstream(self, model: nn.Module, tensors: Tensors) -> Tensors:
        """See `Renaming`."""
        return self._loaded.back(tensors) if self._loaded is not None else tensors

    def _named(self, sample: Tensors) -> Tensors:
        """Return a sample by diffusers' names: what comes behind a name, as in "text[0]", stays."""
        found = {}
        for name, tensor in sample.items():
            head = next(
                (old for old in self._names if name == old or name.startswith((f"{old}[", f"{old}(", f"{old}{{"))), ""
            )
            found[self._names[head] + name.removeprefix(head) if head else name] = tensor
        return found

    def _built(self, checkpoint: Path) -> Any:
        values = json.loads((checkpoint / "config.json").read_text(encoding="utf-8"))
        self._names = values.get(_NAMES, {})
        return self._class.from_config({name: one for name, one in values.items() if not name.startswith("_")})

    def _empty(self, checkpoint: Path) -> Any:
        """Return the model without weights; with them where its constructor computes with tensors outside of torch."""
        with suppress(TypeError, NotImplementedError, RuntimeError), torch.device("meta"):
            return self._built(checkpoint)
        return self._built(checkpoint)

    def _placement(self, checkpoint: Path) -> Placement:
        if checkpoint not in self._placements:
            with safe_open(checkpoint / WEIGHTS, "pt") as file:
                shapes = {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118
            config = self._empty(checkpoint).config
            self._placements[checkpoint] = placement_of(partial(self._convert, config=config), shapes)
        return self._placements[checkpoint]


def _conversion(folder: Path, in_tree: bool) -> Callable[..., Mapping[str, torch.Tensor]]:
    """Return the function that converts a checkpoint: of a package, or of diffusers' loaders."""
    name = f"convert_{folder.name}_transformer_checkpoint_to_diffusers"
    module = "diffusers.loaders.single_file_utils" if in_tree else f"{folder.name}.conversion"
    return cast(Callable[..., Mapping[str, torch.Tensor]], _of(importlib.import_module(module), name))


def _of(module: Any, name: str) -> Any:
    if not hasattr(module, name):
        raise BadInput(f"{module.__name__} has no {name}")
    return getattr(module, name)


def _changed(one: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """Return the first value that differs; keys with an underscore in front say from where a config comes."""
    plain = [
        {name: list(value) if isinstance(value, tuple) else value for name, value in config.items() if name[0] != "_"}
        for config in (one, other)
    ]
    return next((name for name in plain[0].keys() | plain[1].keys() if plain[0].get(name) != plain[1].get(name)), "")
