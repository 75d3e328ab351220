"""Installation of diffusers, and what is imported of it wherever one of its models or pipelines is run."""

from collections.abc import Sequence
from pathlib import Path

from omni_kit.targets.sides import finds_installed

INSTALL_DIFFUSERS = "pip install diffusers"
_IMPORTED = ("diffusers.models.modeling_utils", "diffusers.pipelines.pipeline_utils")


def imported_in_any_case(builder: str, place: Path) -> tuple[str, ...]:
    """Return the modules that the side of an integration imports, whatever it is of; empty if diffusers is a checkout
    in that place.

    Args:
        builder: "module:Class" of the side.
        place: the directory that is searched first.
    """
    return (*_IMPORTED, builder.partition(":")[0]) if finds_installed("diffusers", place) else ()


def shared_unless(forbidden: Sequence[str]) -> tuple[str, ...]:
    """Return the modules that authors who build on diffusers import as well; empty if their process must not."""
    return () if "diffusers" in forbidden else _IMPORTED
