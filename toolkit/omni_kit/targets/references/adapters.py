"""Saved adapters on upstream's models, by peft."""

import importlib.util
import warnings
from pathlib import Path
from typing import Any

from safetensors import safe_open
from safetensors.torch import load_file
from torch import nn

from omni_kit.errors import MissingRequirement
from omni_kit.toys.tensors import Tensors

INSTALL_PEFT = "pip install peft"
_WEIGHTS, _PEFTS = "adapter_model.safetensors", "base_model.model."


def put_adapter(model: nn.Module, adapter: Path) -> int:
    """Load a saved adapter onto a model; how many of the saved tensors have a place in it.

    Raises:
        MissingRequirement: peft is not installed.
    """
    adapted = _adapted(model, adapter)
    wanted = set(_peft().get_peft_model_state_dict(adapted))
    with safe_open(adapter / _WEIGHTS, framework="pt") as saved:
        return len(wanted & set(saved.keys()))


def put_new_adapter(model: nn.Module, adapter: Path, weights: Tensors) -> bool:
    """Put trainable adapters with these weights on a model, in place, by the config of a saved one.

    Whether that could be done: not where peft makes other adapters than these, or where they have a dropout, whose
    random numbers nobody knows.

    Raises:
        MissingRequirement: peft is not installed.
    """
    adapted = _adapted(model, adapter, is_trainable=True)
    made = {name for name in adapted.state_dict() if "lora_" in name}
    drops = any(config.lora_dropout for config in adapted.peft_config.values())
    if made != set(weights) or drops:
        return False
    adapted.load_state_dict(weights, strict=False)
    return True


def put_into_pipeline(pipeline: Any, part: nn.Module, name: str, adapter: Path) -> int:
    """Load a saved adapter by the pipeline's `load_lora_weights`; how many of its tensors one of its parts took.

    That method knows tensors by the part's name, where peft writes `base_model.model`.
    """
    peft = _peft()
    weights = load_file(adapter / _WEIGHTS)
    pipeline.load_lora_weights({f"{name}.{key.removeprefix(_PEFTS)}": tensor for key, tensor in weights.items()})
    (taken,) = getattr(part, "peft_config", None) or ("",)
    found = peft.get_peft_model_state_dict(part, adapter_name=taken) if taken else {}
    return sum(found[key].shape == weights[f"{_PEFTS}{key}"].shape for key in found if f"{_PEFTS}{key}" in weights)


def _adapted(model: nn.Module, adapter: Path, **settings: bool) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # peft warns of what it does not find; that is counted here
        return _peft().PeftModel.from_pretrained(model, str(adapter), **settings)


def _peft() -> Any:
    if importlib.util.find_spec("peft") is None:
        raise MissingRequirement(f"peft is not installed: {INSTALL_PEFT}")
    import peft

    return peft
