"""Finds SGLang's pipelines on disk."""

from collections.abc import Sequence
from pathlib import Path

from omni_kit.errors import BadInput
from omni_kit.targets.folders import integrations_below
from omni_kit.targets.protocol import Integration
from omni_kit.targets.sglang_diffusion.checkout import find_checkout
from omni_kit.targets.sglang_diffusion.pipeline_dir import STAGES, find_pipeline_dir
from omni_kit.upstream.kinds import Kind

_DEPTH = 2


def at(path: Path) -> Integration | None:
    """The integration whose directory `path` is; None where it is none."""
    try:
        return Integration(find_pipeline_dir(path).path, lambda: Kind.pipeline)
    except BadInput:
        return None


def find(path: Path) -> Sequence[Integration]:
    """Integrations at `path`: itself, those in a folder, or those of a checkout whose stages have a folder.

    Raises:
        BadInput: there is none; what `path` itself lacks.
    """
    if (own := at(path)) is not None:
        return [own]
    checkout = find_checkout(path)
    found = list(integrations_below(checkout.package / STAGES if checkout is not None else path, _DEPTH, at))
    return found or [Integration(find_pipeline_dir(path).path, lambda: Kind.pipeline)]
