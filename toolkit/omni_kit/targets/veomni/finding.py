"""Finds VeOmni's integrations on disk, and tells their kinds."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from omni_kit.errors import BadInput
from omni_kit.pysource.library import find_library
from omni_kit.targets.folders import integrations_below
from omni_kit.targets.protocol import Integration
from omni_kit.targets.veomni.checkout import DIFFUSION_MODELS, MODELS, find_checkout
from omni_kit.targets.veomni.dit.directories import denoiser_class
from omni_kit.targets.veomni.model_dir import ModelDir, cannot_be_parsed, find_model_dir, registers
from omni_kit.upstream.kinds import Kind
from omni_kit.upstream.transformers.configs import config_class
from omni_kit.upstream.transformers.defaults import default_config
from omni_kit.upstream.transformers.models import upstream_model
from omni_kit.upstream.transformers.traits import kind_of

_DEPTH = 3  # veomni/models/transformers/<model>, from the first

_DIFFUSION = "veomni.models.diffusers."


def at(path: Path) -> Integration | None:
    """Return the model directory that `path` is; None if it registers no model, as far as that can be told."""
    if registers(path):
        return integration(find_model_dir(path))
    return _broken(path) if cannot_be_parsed(path) else None


def find(path: Path) -> Sequence[Integration]:
    """Model directories at `path`: itself, those of a checkout, or those in a folder.

    Raises:
        BadInput: there is none; what `path` itself lacks.
    """
    checkout = find_checkout(path)
    if checkout is None and (own := at(path)) is not None:
        return [own]
    roots = [checkout.root / MODELS, checkout.root / DIFFUSION_MODELS] if checkout is not None else [path]
    found = [entry for root in roots for entry in integrations_below(root, _DEPTH, at)]
    return found or [integration(find_model_dir(path))]


def integration(found: ModelDir) -> Integration:
    """Return a model directory as the rest of the house knows it."""
    return Integration(found.path, partial(_kind, found))


def _broken(path: Path) -> Integration:
    """Return a directory whose registrations cannot be read: it must not drop out of sight."""
    return Integration(path.resolve(), lambda: Kind.other)


def _kind(found: ModelDir) -> Kind:
    """Return the kind of the first key that upstream knows."""
    if denoiser_class(found) or found.import_name.startswith(_DIFFUSION):
        return Kind.dit
    library = find_library("transformers")
    for key in found.registered:
        try:
            return kind_of(upstream_model(library, default_config(config_class(library, key))))[0]
        except (BadInput, RecursionError):
            continue
    return Kind.other
