"""The files that an integration speaks of: its own and diffusers', read as one library."""

from dataclasses import dataclass
from pathlib import Path

from omni_kit.errors import MissingRequirement
from omni_kit.files import files_matching
from omni_kit.pysource.library import Library, find_library
from omni_kit.upstream.diffusers.package import package_root, part_files

PACKAGE = "diffusers"


@dataclass(frozen=True)
class Packages(Library):
    """A package of its own next to an installed diffusers; `name` and `root` are those of the package itself.

    Attributes:
        beside: diffusers; None if it is not installed, and then nothing of it is read.
    """

    beside: Library | None = None

    def module_file(self, module: str) -> Path | None:
        """Return the file of a dotted module of either package."""
        own = Library(self.name, self.root).module_file(module)
        return own if own is not None or self.beside is None else self.beside.module_file(module)

    def module_name(self, file: Path) -> str:
        """Return the dotted name of a file of either package."""
        own = file.is_relative_to(self.root) or self.beside is None
        return Library(self.name, self.root).module_name(file) if own else self._beside().module_name(file)

    def show(self, file: Path) -> str:
        """Return a file as people cite it."""
        own = file.is_relative_to(self.root) or self.beside is None
        return Library(self.name, self.root).show(file) if own else self._beside().show(file)

    def _beside(self) -> Library:
        assert self.beside is not None
        return self.beside


def library_of(path: Path) -> Library:
    """Return the packages that the files of an integration belong to and import from."""
    root = package_root(path)
    if root is not None:
        return Library(PACKAGE, root)
    try:
        return Packages(path.name, path, find_library(PACKAGE))
    except MissingRequirement:
        return Packages(path.name, path)


def home_of(path: Path) -> Path:
    """Return the package that a file of it stands for; a part of diffusers stands for itself."""
    path = path.resolve()
    return path.parent if path.is_file() and package_root(path) is None else path


def own_files(path: Path) -> list[Path]:
    """Return the Python files of an integration: a package of its own, or a part of diffusers."""
    root = package_root(path)
    return part_files(root, path) if root is not None else files_matching(path, "*.py")
