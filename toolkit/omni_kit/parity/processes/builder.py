"""How a process finds a builder or a feed, which are named and not imported."""

import importlib
from typing import Any

from omni_kit.errors import BadInput


def made(reference: str) -> Any:
    """An instance of the class that "package.module:Class" names.

    Raises:
        BadInput: there is no such class.
    """
    module, _, name = reference.partition(":")
    try:
        return getattr(importlib.import_module(module), name)()
    except (ModuleNotFoundError, AttributeError) as error:
        raise BadInput(f"no builder {reference}: {error}") from error
