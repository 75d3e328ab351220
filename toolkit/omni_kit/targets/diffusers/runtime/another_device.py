"""Check whether a model makes its tensors where its inputs are: the meta device stands for a GPU."""

import re
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from omni_kit.errors import in_short

META = "meta"
# How torch names tensors of two devices in one operation; anything else that fails there fails for want of data.
_MIXED = re.compile(r"is not on the expected device|to have the same device type|tensors to be on the same device")


def moved(model: Any, run: Callable[[], Any]) -> tuple[list[str], list[tuple[str, str]]]:
    """Move a model to the meta device and return whether it was called there, and what mixes devices, where and why.

    A model that reads values of its inputs cannot run without data: it is not judged.

    Args:
        run: calls the model once, with inputs on that device.
    """
    model.to(META)
    try:
        with torch.no_grad():
            run()
    except Exception as error:  # of the model's own code, of any kind
        if not _MIXED.search(str(error)):
            return [], []
        return [], [("to", f"on another device than the CPU {_place(model, error)}: {in_short(error)}")]
    return ["to"], []


def _place(model: Any, error: Exception) -> str:
    """Return the line of the model's own file that failed."""
    file = sys.modules[type(model).__module__].__file__ or ""
    lines = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    return f"{Path(file).name}:{lines[-1].lineno} fails" if lines else "its forward fails"
