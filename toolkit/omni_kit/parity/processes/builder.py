"""How a process finds a builder or a feed, which are named and not imported."""

import importlib
from typing import Any, cast

from omni_kit.errors import OmniKitError
from omni_kit.toys.feeds.protocol import BatchBuilder


class TargetFault(OmniKitError):
    """A target does not keep to its own words; that is no fault of the integration.

    Attributes:
        blames_candidate: never.
    """

    blames_candidate = False


def made_feed(reference: str) -> BatchBuilder:
    """The feed that "package.module:Class" names.

    Raises:
        TargetFault: there is no such class, or it lacks what a feed answers.
    """
    feed = made(reference)
    if missing := [name for name in vars(BatchBuilder) if not name.startswith("_") and not hasattr(feed, name)]:
        raise TargetFault(f"the feed {reference} has no '{missing[0]}'")
    return cast(BatchBuilder, feed)


def made(reference: str) -> Any:
    """An instance of the class that "package.module:Class" names.

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
