"""Saved adapters on upstream's models, by peft."""

import importlib.util
import warnings
from pathlib import Path
from typing import Any

from safetensors import safe_open
from torch import nn

from omni_kit.errors import MissingRequirement
from omni_kit.toys.tensors import Tensors

INSTALL_PEFT = "pip install peft"


def put_adapter(model: nn.Module, adapter: Path) -> int:
    """Load a saved adapter onto a model; how many of the saved tensors have a place in it.

    Raises:
        MissingRequirement: peft is not installed.
    """
    adapted = _adapted(model, adapter)
    wanted = set(_peft().get_peft_model_state_dict(adapted))
    with safe_open(adapter / "adapter_model.safetensors", framework="pt") as saved:
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


def _adapted(model: nn.Module, adapter: Path, **settings: bool) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # peft warns of what it does not find; that is counted here
        return _peft().PeftModel.from_pretrained(model, str(adapter), **settings)


def _peft() -> Any:
    if importlib.util.find_spec("peft") is None:
        raise MissingRequirement(f"peft is not installed: {INSTALL_PEFT}")
    import peft

    return peft
