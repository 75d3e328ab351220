"""Finds integrations: what a directory is, and what lies below it."""

from collections.abc import Sequence
from pathlib import Path

from omni_kit.errors import BadInput
from omni_kit.targets.diffusers.checkout import find_checkout
from omni_kit.targets.diffusers.model_dir import find_model_dir
from omni_kit.targets.diffusers.modular.package import find_package
from omni_kit.targets.folders import integrations_below
from omni_kit.targets.protocol import Integration
from omni_kit.upstream.kinds import Kind

_DEPTH = 2


def at(path: Path) -> Integration | None:
    """The integration whose own directory `path` is; None where it is none."""
    try:
        found = find_model_dir(path)
    except BadInput:
        return _modular_at(path)
    return Integration(found.path, lambda: Kind.dit)


def _modular_at(path: Path) -> Integration | None:
    try:
        return Integration(find_package(path).path, lambda: Kind.modular)
    except BadInput:
        return None


def find(path: Path) -> Sequence[Integration]:
    """Integrations at `path`: itself, those in a folder, or those of a checkout whose pipeline has a folder.

    Raises:
        BadInput: there is none; what `path` itself lacks.
    """
    if (own := at(path)) is not None:
        return [own]
    checkout = find_checkout(path)
    found = list(integrations_below(checkout.library.root / "pipelines" if checkout is not None else path, _DEPTH, at))
    if not found:
        find_model_dir(path)
    return found
