"""The child's end of a worker: `python -m omni_kit.isolation.serving SERVICE NAME [CLOSED]`, or a fork.

Requests arrive as lines on stdin. Replies leave as JSON lines on what stdout was. Everything that libraries print goes
to stderr, which the parent points at a log file.
"""

import faulthandler
import gc
import importlib
import json
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TextIO

from omni_kit.isolation.confinement import confine
from omni_kit.isolation.failures import lacks_package, one_line

Service = Callable[[str], Any]
_LOGGED = 400  # characters of a request


def serve(service: str, name: str, closed: Sequence[str] = ()) -> None:
    """Reply to requests until stdin closes.

    Args:
        service: "package.module:function" of what takes the worker's name and returns the function that replies.
        name: the worker's name.
        closed: directories below which this process cannot open files, where the system supports that.
    """
    for directory in closed:
        confine(Path(directory))
    faulthandler.enable()  # SIGABRT from the parent writes the stack of every thread to the log
    replies = _claim_stdout()
    gc.disable()  # until the first reply: imports leave no garbage, and looking for it takes a sixth of their time
    module, _, function = service.partition(":")
    reply: Service = getattr(importlib.import_module(module), function)(name)
    for line in sys.stdin:
        replies.write(json.dumps(_outcome(reply, line.strip())) + "\n")
        replies.flush()
        gc.enable()


def _claim_stdout() -> TextIO:
    """Return the stdout that the parent reads; whatever prints from now on prints to stderr."""
    own = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return own


def _outcome(reply: Service, line: str) -> dict[str, Any]:
    print(f"--- {line[:_LOGGED]}", file=sys.stderr, flush=True)
    try:
        return {"result": reply(line)}
    except Exception as error:
        traceback.print_exc()
        sys.stderr.flush()
        blames = getattr(error, "blames_candidate", not lacks_package(error))
        broken = getattr(error, "blames_reference", False)
        return {"error": one_line(error), "blames_candidate": blames, "blames_reference": broken}


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2], sys.argv[3:])
