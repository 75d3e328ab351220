"""Saved adapters on upstream's models, by peft."""

import importlib.util
import warnings
from pathlib import Path
from typing import Any

from safetensors import safe_open
from torch import nn

from omni_kit.errors import MissingRequirement

INSTALL_PEFT = "pip install peft"


def put_adapter(model: nn.Module, adapter: Path) -> int:
    """Load a saved adapter onto a model; how many of the saved tensors have a place in it.

    Raises:
        MissingRequirement: peft is not installed.
    """
    if importlib.util.find_spec("peft") is None:
        raise MissingRequirement("peft is not installed", INSTALL_PEFT)
    import peft

    library: Any = peft
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # peft warns of what it does not find; that is counted here
        adapted = library.PeftModel.from_pretrained(model, str(adapter))
    wanted = set(library.get_peft_model_state_dict(adapted))
    with safe_open(adapter / "adapter_model.safetensors", framework="pt") as saved:
        return len(wanted & set(saved.keys()))
