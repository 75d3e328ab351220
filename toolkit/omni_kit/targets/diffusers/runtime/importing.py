"""Run of the top of a written file, as an import does."""

import sys
import traceback
from types import ModuleType
from typing import Any

_NAME = "written_model"


def run(request: dict[str, Any]) -> dict[str, Any]:
    """Return the line at which the file `text` cannot be imported, and why; nothing if it can be."""
    module = sys.modules[_NAME] = ModuleType(_NAME)
    try:
        exec(compile(request["text"], _NAME, "exec"), vars(module))
    except Exception as error:
        lines = [one.lineno for one in traceback.extract_tb(error.__traceback__) if one.filename == _NAME]
        return {"line": lines[-1] if lines else 1, "why": f"{type(error).__name__}: {error}"}
    return {}
