"""Goes through folders in search of integrations; what a framework's integration looks like is the target's word."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from omni_kit.targets.protocol import Integration

_NOT_LOOKED_INTO = frozenset({"__pycache__", "node_modules", "site-packages"})


def integrations_below(folder: Path, depth: int, at: Callable[[Path], Integration | None]) -> Iterator[Integration]:
    """Yield the integrations in a folder, in order; neither integrations nor links are looked into.

    Args:
        depth: how many levels of folders are gone down.
        at: the integration whose own directory a path is; see `Target.at`.
    """
    for entry in _folders(folder) if depth else ():
        if (found := at(entry)) is not None:
            yield found
        elif not entry.is_symlink():
            yield from integrations_below(entry, depth - 1, at)


def _folders(folder: Path) -> list[Path]:
    """Return the directories in a folder that may be looked at."""
    try:
        names = sorted(entry.name for entry in os.scandir(folder) if entry.is_dir())
    except OSError:  # no directory, or somebody else's
        return []
    return [folder / name for name in names if not name.startswith(".") and name not in _NOT_LOOKED_INTO]
