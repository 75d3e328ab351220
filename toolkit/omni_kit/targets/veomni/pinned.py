"""The versions of upstream's libraries that VeOmni's own modeling files were generated from."""

import re
from collections import Counter
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, requires
from importlib.util import find_spec
from pathlib import Path

from packaging.requirements import Requirement

_BASED = re.compile(r"^#\s+Based on:\s*(\w+)==([\w.]+)", re.MULTILINE)
_HEAD = 2000  # characters of a file that may hold the line


def pinned_versions() -> Mapping[str, str]:
    """Return library -> specifier: as the installed VeOmni's files state it, else as the extra `veomni` pins it."""
    spec = find_spec("veomni")
    roots = [Path(place) for place in (spec.submodule_search_locations or ())] if spec is not None else []
    files = (file for root in roots for file in root.glob("models/transformers/*/generated/*.py"))
    stated = Counter(found.groups() for file in files if (found := _BASED.search(_head(file))))
    newest_last = sorted(stated, key=lambda one: stated[one])
    return {**_extra(), **{library: f"=={version}" for library, version in newest_last}}


def _head(file: Path) -> str:
    with file.open(encoding="utf-8", errors="replace") as opened:
        return opened.read(_HEAD)


def _extra() -> dict[str, str]:
    """Return what the extra `veomni` pins."""
    try:
        written = map(Requirement, requires("omni-kit") or [])
    except PackageNotFoundError:
        return {}
    of_extra = (one for one in written if one.marker is not None and 'extra == "veomni"' in str(one.marker))
    return {one.name: str(one.specifier) for one in of_extra if str(one.specifier).startswith("==")}
