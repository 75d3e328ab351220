"""`python -m omni_kit.parity.worker`: one side of a comparison in its own process.

Requests come as JSON lines on stdin, replies leave as JSON lines on what stdout was; everything that libraries print
goes to stderr, which the parent points at a log file.
"""

import faulthandler
import importlib.util
import json
import os
import sys
import traceback
from typing import Any, TextIO

from omni_kit.errors import OmniKitError

_LOGGED = 400  # characters of a request


def main() -> None:
    """Answers requests until stdin closes."""
    faulthandler.enable()  # an abort from the parent leaves every thread's stack in the log
    replies = _claim_stdout()
    from omni_kit.parity.steps import Side

    side = Side()
    for line in sys.stdin:
        request = json.loads(line)
        replies.write(json.dumps(_answer(side, request)) + "\n")
        replies.flush()


def _claim_stdout() -> TextIO:
    """The stdout that the parent reads; whatever prints from now on prints to stderr."""
    own = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return own


def _answer(side: Any, request: dict[str, Any]) -> dict[str, Any]:
    print(f"--- {request['step']} {json.dumps(request['args'])[:_LOGGED]}", file=sys.stderr, flush=True)
    try:
        result = getattr(side, request["step"])(**request["args"])
        side.check_imports()
    except Exception as error:
        traceback.print_exc()
        sys.stderr.flush()
        return {"error": _one_line(error), "environment": _lacks_package(error)}
    return {"result": result}


def _lacks_package(error: Exception) -> bool:
    """A package that is nowhere to be found; a module missing from a package that is there is the package's fault."""
    name = error.name if isinstance(error, ModuleNotFoundError) else None
    return bool(name) and importlib.util.find_spec(str(name).partition(".")[0]) is None


def _one_line(error: Exception) -> str:
    """The last line of the traceback, with the place that raised."""
    text = " ".join(str(error).split()) or "no message"
    if isinstance(error, OmniKitError):
        return text
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {text[:400]}{where}"


if __name__ == "__main__":
    main()
