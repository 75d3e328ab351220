"""Look-up of builders and batch builders in a process, which receives their names and does not import them itself."""

import importlib
from typing import Any, cast

from omni_kit.errors import OmniKitError
from omni_kit.toys.batches.protocol import BatchBuilder


class TargetFault(OmniKitError):
    """A target does not keep to its own words; that is no fault of the integration.

    Attributes:
        blames_candidate: never.
    """

    blames_candidate = False


def made_batch_builder(reference: str) -> BatchBuilder:
    """Return the batch_builder that "package.module:Class" names.

    Raises:
        TargetFault: there is no such class, or it does not implement `BatchBuilder`.
    """
    batch_builder = made(reference)
    if missing := [
        name for name in vars(BatchBuilder) if not name.startswith("_") and not hasattr(batch_builder, name)
    ]:
        raise TargetFault(f"the batch builder {reference} has no '{missing[0]}'")
    return cast(BatchBuilder, batch_builder)


def made(reference: str) -> Any:
    """Return an instance of the class that "package.module:Class" names.

    It is made without arguments.

    Raises:
        TargetFault: there is no such class.
    """
    module, _, name = reference.partition(":")
    if not name:
        raise TargetFault(f"'{reference}' names no class: write package.module:Class")
    try:
        return getattr(importlib.import_module(module), name)()
    except (ModuleNotFoundError, AttributeError) as error:
        if isinstance(error, ModuleNotFoundError) and not (error.name and f"{module}.".startswith(f"{error.name}.")):
            raise  # a module that the builder imports
        raise TargetFault(f"there is no {reference}: {error}") from error
