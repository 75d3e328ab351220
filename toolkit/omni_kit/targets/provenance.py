"""Record of what an integration was made from, next to it."""

import re
from pathlib import Path

from omni_kit.documents import read_toml
from omni_kit.files import files_matching, is_file
from omni_kit.pysource.library import Library
from omni_kit.upstream.diffusers.local_pipelines import absolute
from omni_kit.upstream.diffusers.pipelines import INDEX

SCHEDULER = "_scheduler"
"""Of a toy's config: which scheduler its pipeline has, with its own config."""
ALONE = "_alone"
"""Of that: the scheduler is of the integration itself, and compared without a model, too."""
_ANSWERS = ".omni-kit.toml"
_BASED = re.compile(r"^#\s+Based on:\s*(\w+)==([\w.]+)", re.MULTILINE)


def recorded_source(path: Path) -> str:
    """Return a SOURCE: the absolute path of a pipeline, or a name as it was given; empty without a record."""
    given = _recorded(path, "source")
    return str(Path(given).resolve()) if given and Path(given, INDEX).is_file() else absolute(given)


def other_version(path: Path, library: Library) -> str:
    """Return one line where an integration was made from another version of a library than this one; else empty.

    The versions that generated files name in their heads count for more than the record.
    """
    heads = [_head(file) for file in files_matching(path / "generated", "*.py")]
    stated = [found.group(2) for head in heads for found in _BASED.finditer(head) if found.group(1) == library.name]
    made = stated[0] if stated else _recorded(path, library.name)
    if made == "" or library.version in (made, *stated):
        return ""
    return (
        f"{path.resolve().name} was made from {library.name} {made}, and {library.version} is read here; "
        f"read {made}, or run omni-kit new-model again with {library.version}"
    )


def _head(file: Path) -> str:
    try:
        with file.open(encoding="utf-8") as text:
            return text.read(4000)
    except (OSError, ValueError):
        return ""


def _recorded(path: Path, answer: str) -> str:
    try:
        recorded = read_toml((path / _ANSWERS).read_text(encoding="utf-8") if is_file(path / _ANSWERS) else "")
        return str(recorded["answers"][answer])
    except (OSError, ValueError, KeyError, TypeError):
        return ""
