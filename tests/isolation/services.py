"""What the workers of these tests reply."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from omni_kit.isolation.requests import CALLING, Call
from omni_kit.isolation.servers import Start, fork_server
from omni_kit.isolation.worker import Worker, environment


def expressions(name: str) -> Callable[[str], Any]:
    """Return a function that evaluates a line."""
    return lambda line: eval(line, {"os": os, "sys": sys, "name": name})


def execute(code: str) -> None:
    """Run statements."""
    exec(code, {})


def value(expression: str) -> Any:
    """Return the value of an expression."""
    return eval(expression, {"sys": sys})


def forked_from_here(request: dict[str, str]) -> Any:
    """Return the value of an expression in a fork of this process; the module `colorsys` has `here` from before."""
    import colorsys

    vars(colorsys)["here"] = 1
    modules = ("colorsys",)
    fork_server(Start((), environment(CALLING, (), None), "", modules))
    vars(colorsys)["later"] = 1
    where, function = Path(request["logs"]), f"{__name__}:value"
    with Worker("nested", where, service=CALLING, argument=function, modules=modules) as nested:
        return nested.ask(Call(request["expression"]))
