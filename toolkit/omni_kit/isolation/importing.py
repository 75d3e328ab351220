"""Importing modules in a worker: which of them cannot be imported, and why."""

import importlib
import tempfile
from collections.abc import Sequence
from pathlib import Path

from omni_kit.isolation.requests import CALLING, Call
from omni_kit.isolation.worker import StepError, Worker

_TIMEOUT = 120.0  # seconds that one import may take


def imported(modules: Sequence[str]) -> dict[str, str]:
    """Return why modules cannot be imported, by module; one that ends its process does not hide the next."""
    found: dict[str, str] = {}
    while left := [name for name in modules if name not in found]:
        found |= _up_to_death(left)
    return {name: problem for name, problem in found.items() if problem}


def _up_to_death(modules: Sequence[str]) -> dict[str, str]:
    """Why modules cannot be imported, empty for those that can; up to the first that ends the process."""
    found: dict[str, str] = {}
    with (
        tempfile.TemporaryDirectory(prefix="omni-kit-imports-") as logs,
        Worker("imports", Path(logs), timeout=_TIMEOUT, service=CALLING, argument=f"{__name__}:attempt") as worker,
    ):
        for name in modules:
            try:
                found[name] = worker.ask(Call(name))
            except StepError as error:
                found[name] = str(error)
                break
    return found


def attempt(name: str) -> str:
    """Import a module; return why that fails, and an empty text if it does not."""
    try:
        importlib.import_module(name)
    except BaseException as error:
        return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
    return ""
