"""Two versions of a small library, for upgrades from one to the other."""

from collections.abc import Mapping
from pathlib import Path


def write_libraries(folder: Path, name: str, old: Mapping[str, str], new: Mapping[str, str]) -> tuple[Path, Path]:
    """Write both versions, module name -> text, and return the directories that they are in."""
    for side, modules in (("old", old), ("new", new)):
        package = folder / side / name
        package.mkdir(parents=True)
        for module, text in {"__init__": "", **modules}.items():
            (package / f"{module}.py").write_text(text, encoding="utf-8")
    return folder / "old", folder / "new"
