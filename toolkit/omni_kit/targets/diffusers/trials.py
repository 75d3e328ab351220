"""Processes in which a plan is tried: forks of one that has imported torch, or diffusers, too."""

import importlib.util
from typing import Any

from omni_kit.isolation.requests import prepare, run_worker

TOYS = "omni_kit.targets.references.found_toy"
"""Module that finds a toy; it imports all that running the authors' code does."""
IMPORTING = "omni_kit.targets.diffusers.runtime.importing"
"""Module that imports a written file."""
METHODS = "omni_kit.targets.references.authors_methods"
"""Module that runs the authors' methods, which step with a scheduler of diffusers."""
_IMPORTS = ("torch", TOYS)
_LIBRARY = (
    "diffusers.models.modeling_utils", "diffusers.loaders.peft", "diffusers.loaders.single_file_model",
    "diffusers.pipelines.pipeline_utils", IMPORTING, METHODS,
)  # fmt: skip


def begin() -> None:
    """Start the processes of which trials are forks, if torch is installed, and do not wait for them."""
    if importlib.util.find_spec("torch") is not None:
        prepare(_IMPORTS, beyond=_LIBRARY)


def tried(function: str, request: Any, timeout: float, *, library: bool = False) -> Any:
    """Return a function's result for a request, from a process of its own; see `run_worker`.

    Args:
        library: it imports diffusers in any case.
    """
    return run_worker(function, request, timeout=timeout, modules=_IMPORTS, beyond=_LIBRARY if library else ())
