"""Importing modules in a worker: which of them cannot be imported, and why."""

import importlib
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from omni_kit.errors import in_short
from omni_kit.isolation.failures import lacking_package, missing
from omni_kit.isolation.requests import CALLING, Call
from omni_kit.isolation.worker import StepError, Worker

_TIMEOUT = 120.0  # seconds that one import may take


class ImportProblem(NamedTuple):
    """Reason why a module cannot be imported, in one line, and the missing package if that is the reason."""

    text: str
    lacks: str = ""


def imported(
    modules: Sequence[str], first: Sequence[Path] = (), how: str = f"{__name__}:attempt"
) -> dict[str, ImportProblem]:
    """Return why modules cannot be imported, by module; one that ends its process does not hide the next.

    Args:
        first: directories that are searched before what is installed.
        how: "module:function" of what imports one, as `attempt` does.
    """
    found: dict[str, ImportProblem] = {}
    while left := [name for name in modules if name not in found]:
        found |= _up_to_death(left, first, how)
    return {name: problem for name, problem in found.items() if problem.text}


def _up_to_death(modules: Sequence[str], first: Sequence[Path], how: str) -> dict[str, ImportProblem]:
    """Return why modules cannot be imported, without text for importable ones; stops at one that ends the process."""
    found: dict[str, ImportProblem] = {}
    with (
        tempfile.TemporaryDirectory(prefix="omni-kit-imports-") as logs,
        Worker("imports", Path(logs), timeout=_TIMEOUT, path=first, service=CALLING, argument=how) as worker,
    ):
        for name in modules:
            try:
                found[name] = ImportProblem(*worker.ask(Call(name)))
            except StepError as error:
                found[name] = ImportProblem(str(error))
                break
    return found


def attempt(name: str) -> ImportProblem:
    """Import a module; return why that fails, without text if it does not."""
    try:
        importlib.import_module(name)
    except BaseException as error:
        text = in_short(error)
        lacks = lacking_package(error)
        return ImportProblem(missing(error, lacks) if lacks and lacks != name else text, lacks)
    return ImportProblem("")
