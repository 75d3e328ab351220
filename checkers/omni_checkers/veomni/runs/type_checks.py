"""A type checker's diagnostics of VeOmni models, next to those of upstream's own files."""

import importlib.util
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from omni_checkers.engine.typechecker import available, drifted
from omni_kit.files import files_matching

_SOURCE = re.compile(r"^#\s+Source: ([\w.]+)$", re.MULTILINE)
_HEAD = 1000  # characters in which a generated file says what it was made from


def typed_facts(paths: Sequence[Path]) -> dict[Path, list[Any]]:
    """Path -> the number of its files, then (file, line, words) of each diagnostic; nothing without a type checker.

    Raises:
        MissingRequirement: the type checker is installed and cannot run.
    """
    if not available():
        return {}
    own = {path: _typed_files(path) for path in paths}
    files = sorted({file for some in own.values() for file in some})
    said = drifted(files, sorted({file for some in own.values() for file in map(_upstream_of, some) if file}))
    return {
        path: [len(some), *([str(one.path), one.line, one.said] for one in said if one.path in set(some))]
        for path, some in own.items()
    }


def _typed_files(path: Path) -> list[Path]:
    """Generated and hand-written files; configs of patchgen name things of a namespace that is not theirs."""
    found = (file.resolve() for file in files_matching(path, "**/*.py"))
    return [file for file in found if not file.stem.endswith("patch_gen_config") and "tests" not in file.parts]


def _upstream_of(file: Path) -> Path | None:
    """Return upstream's file that a generated one was made from, as it says itself."""
    match = _SOURCE.search(file.read_text(encoding="utf-8")[:_HEAD]) if file.parent.name == "generated" else None
    if match is None:
        return None
    spec = importlib.util.find_spec("transformers")
    root = Path(str(spec.origin)).parents[1] if spec is not None else None
    found = root / f"{match[1].replace('.', '/')}.py" if root is not None else None
    return found.resolve() if found is not None and found.is_file() else None
