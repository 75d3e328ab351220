"""The candidate side of a VeOmni comparison: builds, loads and saves as VeOmni's trainers do, in one process."""

import dataclasses
import importlib
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

from torch import distributed, nn

from omni_kit.errors import BadInput
from omni_kit.parity.builder import Tensors
from omni_kit.parity.language import language_model
from omni_kit.targets.veomni.feed import arguments
from omni_kit.targets.veomni.stand_ins import register_stand_ins, stand_ins_used

_SHARDS = 3
_NO_KERNEL: Mapping[str, str] = {"qat_implementation": "none"}


class VeOmniBuilder:
    """Builds through MODELING_REGISTRY and `build_foundation_model`, with every kernel slot on its eager form."""

    def __init__(self) -> None:
        self._device = "cpu"

    def open(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Imports the model directory.

        Args:
            options: the fields of a ModelDir; `registered` are the keys that it must register.

        Raises:
            BadInput: the import leaves a key to somebody else, or finds another package of that name.
        """
        sys.path.insert(0, options["sys_path"])
        self._device = options.get("device", "cpu")
        _one_process(self._device)
        stand_ins_used()  # of a model that was compared before in this process
        import veomni
        from veomni.models.loader import MODELING_REGISTRY

        directory = Path(options["path"])
        if options["style"] == "in-tree":
            _forget_overrides(MODELING_REGISTRY, options["registered"])
        module = importlib.import_module(options["import_name"])
        if (found := Path(str(module.__file__)).resolve().parent) != directory:
            raise BadInput(f"importing {options['import_name']} gives {found}, not {directory}")
        for key in options["registered"]:
            _check_registered(MODELING_REGISTRY, key, options["import_name"])
        return {"library": "veomni", "version": getattr(veomni, "__version__", "unknown")}

    def shapes(self, config_dir: Path) -> dict[str, list[int]]:
        model = self._build(config_dir, None, "meta")
        return {name: list(tensor.shape) for name, tensor in model.state_dict().items()}

    def load(self, checkpoint: Path, dtype: str = "float32") -> nn.Module:
        model = self._build(checkpoint, checkpoint, self._device, dtype)
        if left := [name for name, tensor in model.state_dict().items() if tensor.is_meta]:
            raise BadInput(f"VeOmni's loader left {left[0]} without storage")
        return cast(nn.Module, model.train())

    def save(self, model: Any, checkpoint: Path, out: Path) -> None:
        """Exports as the trainers do: only what the converted index of the checkpoint names; but in float32."""
        from veomni.models.checkpoint_tensor_loading import (
            parse_fqn_to_index_mapping_from_json,
            resolve_fqn_to_index_mapping_for_save,
        )
        from veomni.models.module_utils import save_model_weights

        state = model.state_dict()
        index = checkpoint / "model.safetensors.index.json"
        if index.is_file():
            exported = (
                resolve_fqn_to_index_mapping_for_save(model, parse_fqn_to_index_mapping_from_json(str(index))) or {}
            )
            state = {name: tensor for name, tensor in state.items() if name in exported}
        size = sum(tensor.numel() * tensor.element_size() for tensor in state.values())
        save_model_weights(str(out), state, save_dtype="float32", shard_size=max(1, size // _SHARDS))
        (out / "config.json").write_bytes((checkpoint / "config.json").read_bytes())

    def forward(self, model: nn.Module, inputs: Tensors) -> Tensors:
        return language_model(model, inputs, arguments)

    def notes(self) -> list[str]:
        return stand_ins_used()

    def _build(self, config_dir: Path, weights: Path | None, device: str, dtype: str = "float32") -> Any:
        from veomni.models import build_foundation_model

        return build_foundation_model(
            config_path=str(config_dir),
            weights_path=str(weights) if weights else None,
            torch_dtype=dtype,
            init_device=device,
            ops_implementation=eager_operations(),
        )


def _forget_overrides(registry: Any, keys: list[str]) -> None:
    """Removes what a plugin that was compared before in this process put over VeOmni's own registrations."""
    for key in keys:
        with suppress(KeyError):
            del registry[key]


def _check_registered(registry: Any, key: str, import_name: str) -> None:
    """Raises unless `key` leads into the model directory."""
    if key not in registry.valid_keys():
        raise BadInput(f"importing {import_name} does not register '{key}' with MODELING_REGISTRY")
    owner = getattr(registry[key], "__module__", import_name)
    if owner != import_name and not owner.startswith(f"{import_name}."):
        raise BadInput(f"'{key}' is registered by {owner}: importing {import_name} does not replace it")


def eager_operations() -> Any:
    """VeOmni's kernel selection with no kernel selected, but where it has no eager form at all."""
    from veomni.arguments.arguments_types import OpsImplementationConfig

    names = [
        field.name for field in dataclasses.fields(OpsImplementationConfig) if field.name.endswith("_implementation")
    ]
    eager = {name: _NO_KERNEL.get(name, "eager") for name in names}
    stand_ins = {name: kernel for name, kernel in register_stand_ins().items() if name in eager}
    return OpsImplementationConfig(**{**eager, **stand_ins})


def _one_process(device: str) -> None:
    """A process group of one: without any, VeOmni's loader silently returns a model without storage."""
    if not distributed.is_initialized():
        backend = "nccl" if device == "cuda" else "gloo"
        distributed.init_process_group(backend, store=distributed.HashStore(), rank=0, world_size=1)
