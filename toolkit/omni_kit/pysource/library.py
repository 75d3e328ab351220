"""Finds an installed or unpacked library and reads its files, without importing it."""

import importlib.util
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from omni_kit.errors import BadInput, MissingRequirement

_VERSION = re.compile(r"""^__version__\s*=\s*["']([^"']+)["']""", re.MULTILINE)


@dataclass(frozen=True)
class Library:
    """One version of a Python package, to be read.

    Attributes:
        name: the import name ("transformers").
        root: the package directory, the one with `__init__.py`.
    """

    name: str
    root: Path

    @cached_property
    def version(self) -> str:
        """The version that the package states in its source; "unknown" where it states none."""
        for name in ("__init__.py", "_version.py", "version.py"):
            file = self.root / name
            if file.is_file() and (match := _VERSION.search(file.read_text(encoding="utf-8"))):
                return match.group(1)
        return "unknown"

    def module_file(self, module: str) -> Path | None:
        """Return the file of a dotted module of this library, or None if it has none."""
        parts = module.split(".")
        if parts[0] != self.name:
            return None
        base = self.root.joinpath(*parts[1:])
        for candidate in (base.with_suffix(".py"), base / "__init__.py"):
            if candidate.is_file() and (candidate.name == "__init__.py" or len(parts) > 1):
                return candidate
        return None

    def module_name(self, file: Path) -> str:
        """Return the dotted name of one of the library's files."""
        parts = (self.name, *file.relative_to(self.root).with_suffix("").parts)
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    def show(self, file: Path) -> str:
        """`file` as people cite it: relative to the directory that holds the package."""
        return file.relative_to(self.root.parent).as_posix() if file.is_relative_to(self.root) else file.as_posix()


def find_library(name: str, path: Path | None = None) -> Library:
    """Return the library `name`: the installed one, or the one unpacked at `path`.

    Args:
        name: import name.
        path: the package directory, a directory that holds it, or a checkout with src/<name>.

    Raises:
        BadInput: `path` has no such package.
        MissingRequirement: no path was given and the library is not installed.
    """
    if path is not None:
        for root in (path, path / name, path / "src" / name):
            if (root / "__init__.py").is_file() and root.name == name:
                return Library(name, root.resolve())
        raise BadInput(f"{path} contains no {name} package", f"pass the directory that contains {name}/__init__.py")
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None or not spec.submodule_search_locations:  # a folder of that name is none
        raise MissingRequirement(f"{name} is not installed", f"pip install {name}")
    return Library(name, Path(next(iter(spec.submodule_search_locations))))


@contextmanager
def used_instead(paths: Mapping[str, Path | None]) -> Iterator[list[Path]]:
    """Let this process find other versions of libraries first; yields the directories to prepend for others.

    To be entered before any of the libraries is imported.

    Args:
        paths: import name -> as `find_library` takes it; None leaves the installed version.

    Raises:
        BadInput: a path has no such package.
    """
    given = [find_library(name, path) for name, path in paths.items() if path is not None]
    if not given:
        yield []
        return
    with tempfile.TemporaryDirectory(prefix="omni-kit-libraries-") as place:
        for library in given:
            beside = library.root.parent.glob(f"{library.name}-*.dist-info")
            for found in (library.root, *beside):  # the version is asked of the metadata, too
                (Path(place) / found.name).symlink_to(found, target_is_directory=True)
        sys.path.insert(0, place)
        try:
            yield [Path(place)]
        finally:
            sys.path.remove(place)
