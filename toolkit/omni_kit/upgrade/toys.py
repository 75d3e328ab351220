"""Toy configs next to integrations: what upstream's newer defaults make of them."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from omni_kit.documents import read_mapping
from omni_kit.errors import BadInput
from omni_kit.files import write_atomic
from omni_kit.pysource.library import Library
from omni_kit.toys.modules import small_config
from omni_kit.upstream.transformers.configs import config_class
from omni_kit.upstream.transformers.defaults import default_config
from omni_kit.upstream.transformers.models import upstream_model

_ABSENT = object()


def follow_toys(folder: Path, root: Path, old: Library, new: Library, *, write: bool) -> list[str]:
    """Bring the toy configs of a model up to date; values that a person chose stay.

    Args:
        folder: the model's directory, whose toy is in it, or in the tests of the checkout at `root`.

    Returns:
        The files that changed or would.
    """
    changed = []
    for file in (folder / "toy_config.json", *sorted(root.glob(f"tests/toy_config/{folder.name}_toy/config.json"))):
        found = _followed(file, old, new) if file.is_file() else None
        if found is not None:
            changed.append(str(file.relative_to(root)) if file.is_relative_to(root) else str(file))
            if write:
                write_atomic(file, json.dumps(found, indent=2, ensure_ascii=False) + "\n")
    return changed


def _followed(file: Path, old: Library, new: Library) -> dict[str, Any] | None:
    """Return a toy config under the newer version; None if nothing changes, or one version does not have its model."""
    try:
        ours = read_mapping(file)
        base, theirs = (_derived(library, str(ours.get("model_type", ""))) for library in (old, new))
    except BadInput:
        return None
    merged = dict(_merged(ours, base, theirs))
    return merged if merged != ours else None


def _derived(library: Library, model_type: str) -> Mapping[str, Any]:
    return small_config(upstream_model(library, default_config(config_class(library, model_type))))


def _merged(ours: Mapping[str, Any], base: Mapping[str, Any], theirs: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Field by field: upstream's change where ours is what the older version gave, else ours."""
    for name in dict.fromkeys([*ours, *theirs]):
        mine, was, now = (one.get(name, _ABSENT) for one in (ours, base, theirs))
        if all(isinstance(one, Mapping) for one in (mine, was, now)):
            yield name, dict(_merged(mine, was, now))
        elif (taken := now if mine == was else mine) is not _ABSENT:
            yield name, taken
