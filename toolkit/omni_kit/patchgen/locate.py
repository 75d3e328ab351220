"""From dotted module names to files, without importing anything."""

import importlib.machinery
import importlib.metadata
import importlib.util
import os
import re
import sys
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from omni_kit.errors import BadInput

_VERSION = re.compile(r"^__version__\s*=\s*[\"']([^\"']+)[\"']", re.MULTILINE)


class Libraries:
    """Locations of packages: given unpacked versions first, then given roots, then the installed ones.

    Args:
        unpacked: package name to the directory of that package.
        roots: directories that hold packages (as entries of `sys.path` do).
    """

    def __init__(self, unpacked: Mapping[str, Path] | None = None, roots: tuple[Path, ...] = ()) -> None:
        self.unpacked = dict(unpacked or {})
        self.roots = roots

    def file_of(self, module: str) -> Path | None:
        """Return the source file of a dotted module ("a.b" or the `__init__.py` of package "a.b"); None when there is
        none.
        """
        top, *rest = module.split(".")
        for place in self._places(top):
            found = _module_file(place.joinpath(*rest))
            if found is not None:
                return found
        return None

    def has(self, top: str) -> bool:
        """Return whether a top-level package or module is there; it is not imported."""
        return bool(self._places(top)) or top in sys.builtin_module_names

    def is_binary_or_namespace(self, module: str) -> bool:
        """Return whether a module exists without a source file: an extension, or a directory without `__init__.py`."""
        top, *rest = module.split(".")
        for place in (place.joinpath(*rest) for place in self._places(top)):
            if place.is_dir() or any(place.parent.glob(f"{place.name}.*.so")):
                return True
        return False

    def version_of(self, top: str) -> str:
        """Return the version that the package says of itself; "unknown" when it says none."""
        for place in self._places(top):
            initial = place / "__init__.py"
            match = _VERSION.search(initial.read_text(encoding="utf-8")) if initial.is_file() else None
            if match:
                return match.group(1)
        try:
            return "unknown" if top in self.unpacked else importlib.metadata.version(top)
        except importlib.metadata.PackageNotFoundError:
            return "unknown"

    def _places(self, top: str) -> list[Path]:
        if top in self.unpacked:
            return [self.unpacked[top]]
        local = [root / top for root in self.roots if _module_file(root / top) or (root / top).is_dir()]
        return local + [place for place in installed_places(top) if place not in local]


def unpacked_library(name: str, path: Path) -> Path:
    """Return the package directory `name` at `path`, which may be the directory itself, its parent, or a checkout with
    src/.

    Raises:
        BadInput: there is no such package.
    """
    for candidate in (path, path / name, path / "src" / name):
        if candidate.name == name and (candidate / "__init__.py").is_file():
            return candidate
    raise BadInput(f"{path} contains no {name} package", f"pass the directory that contains {name}/__init__.py")


@lru_cache(maxsize=256)
def is_installed(top: str) -> bool:
    """Return whether Python would find a top-level module, of whatever kind; it is not imported."""
    try:
        return importlib.util.find_spec(top) is not None
    except (ImportError, ValueError, AttributeError):  # a module in sys.modules that says nothing of its origin
        return top in sys.modules


@lru_cache(maxsize=256)
def installed_places(top: str) -> tuple[Path, ...]:
    """Directories (or the single file, without its suffix) of an installed top-level package; it is not imported."""
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError, AttributeError):
        return ()
    if spec is None:
        return ()
    if spec.submodule_search_locations is not None:
        return tuple(Path(place) for place in spec.submodule_search_locations)
    return (Path(spec.origin).with_suffix(""),) if spec.origin and spec.origin.endswith(".py") else ()


def package_of(path: Path) -> tuple[Path, str]:
    """Return the root and dotted name of a file, from the `__init__.py` files around it alone.

    The answer is the same on every machine and for every way of naming the file. A file outside any package has its
    own directory as root and its file name as name.
    """
    parts, folder = [path.stem], Path(os.path.abspath(path)).parent
    while (folder / "__init__.py").is_file():
        parts.insert(0, folder.name)
        folder = folder.parent
    return folder, ".".join(parts) if len(parts) > 1 else path.name


def _module_file(place: Path) -> Path | None:
    as_file = place.with_name(place.name + ".py")
    if as_file.is_file():
        return as_file
    as_package = place / "__init__.py"
    return as_package if as_package.is_file() else None
