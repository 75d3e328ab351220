"""The child's end of a worker: `python -m omni_kit.isolation.serving SERVICE NAME [CONFINEMENT]`, or a fork.

Requests arrive as lines on stdin, each behind a token that its reply repeats. Replies leave as JSON lines on what
stdout was. Everything that libraries print goes to stderr, which the parent points at a log file.
"""

import faulthandler
import gc
import importlib
import json
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any, TextIO

from omni_kit.isolation.confinement import Confinement, confine
from omni_kit.isolation.failures import REQUESTED, lacks_package, one_line
from omni_kit.isolation.limits import drop_privileges, own_shared_memory

Service = Callable[[str], Any]
_LOGGED = 400  # characters of a request


def serve(service: str, name: str, confinement: str = "", shared: str = "") -> None:
    """Reply to requests until stdin closes.

    Args:
        service: "package.module:function" of what takes the worker's name and returns the function that replies.
        name: the worker's name.
        confinement: the fields of a `Confinement` as a JSON object; empty for a process that is not confined.
        shared: bytes of a shared memory of its own; empty for one that shares everybody's.
    """
    sys.argv, sys.orig_argv[:] = [""], [sys.executable]  # an integration runs as it does elsewhere
    if shared:
        own_shared_memory(int(shared))
        drop_privileges()
    if confinement:
        fields = json.loads(confinement)
        confine(Confinement(tuple(fields["closed"]), tuple(fields["unwritable"]), fields["writes"]))
    faulthandler.enable()  # SIGABRT from the parent writes the stack of every thread to the log
    replies = _claim_stdout()
    gc.disable()  # until the first reply: imports leave no garbage, and looking for it takes a sixth of their time
    reply: Service = _attribute(service)(name)
    for line in sys.stdin:
        token, _, request = line.strip().partition(" ")
        replies.write(json.dumps({"token": token, **_outcome(reply, request)}) + "\n")
        replies.flush()
        gc.enable()


def calling(name: str) -> Service:
    """Return a service that calls the function "package.module:function" with the JSON value of each request."""
    return lambda line: _attribute(name)(json.loads(line))


def _attribute(name: str) -> Any:
    module, _, function = name.partition(":")
    return getattr(importlib.import_module(module), function)


def _claim_stdout() -> TextIO:
    """Return the stdout that the parent reads; whatever prints from now on prints to stderr."""
    own = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return own


def _outcome(reply: Service, line: str) -> dict[str, Any]:
    print(f"{REQUESTED}{line[:_LOGGED]}", file=sys.stderr, flush=True)
    try:
        return {"result": reply(line)}
    except Exception as error:
        traceback.print_exc()
        sys.stderr.flush()
        blames = getattr(error, "blames_candidate", not lacks_package(error))
        broken = getattr(error, "blames_reference", False)
        place = str(getattr(error, "place", ""))
        return {"error": one_line(error), "blames_candidate": blames, "blames_reference": broken, "place": place}


if __name__ == "__main__":
    serve(*sys.argv[1:])
