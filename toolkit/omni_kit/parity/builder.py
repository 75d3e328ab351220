"""How a process finds the builder of its side."""

import importlib
from typing import cast

from omni_kit.errors import BadInput
from omni_kit.targets.builder import Builder


def make_builder(reference: str) -> Builder:
    """The builder that "package.module:Class" names.

    Raises:
        BadInput: there is no such class.
    """
    module, _, name = reference.partition(":")
    try:
        return cast(Builder, getattr(importlib.import_module(module), name)())
    except (ModuleNotFoundError, AttributeError) as error:
        raise BadInput(f"no builder {reference}: {error}") from error
