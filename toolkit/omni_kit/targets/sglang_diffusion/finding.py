"""Finds SGLang's pipelines on disk."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from omni_kit.errors import BadInput
from omni_kit.targets.protocol import Integration
from omni_kit.targets.sglang_diffusion.checkout import find_checkout
from omni_kit.targets.sglang_diffusion.pipeline_dir import STAGES, find_pipeline_dir
from omni_kit.upstream.kinds import Kind

_DEPTH = 2
_NOT_LOOKED_INTO = frozenset({"__pycache__", "node_modules", "site-packages"})


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
    found = list(_walk(checkout.package / STAGES if checkout is not None else path, _DEPTH))
    return found or [Integration(find_pipeline_dir(path).path, lambda: Kind.pipeline)]


def _walk(folder: Path, depth: int) -> Iterator[Integration]:
    """The integrations in a folder, in order; neither integrations nor links are looked into."""
    for entry in _folders(folder) if depth else ():
        if (found := at(entry)) is not None:
            yield found
        elif not entry.is_symlink():
            yield from _walk(entry, depth - 1)


def _folders(folder: Path) -> list[Path]:
    try:
        names = sorted(entry.name for entry in os.scandir(folder) if entry.is_dir())
    except OSError:  # no directory, or somebody else's
        return []
    return [folder / name for name in names if not name.startswith(".") and name not in _NOT_LOOKED_INTO]
