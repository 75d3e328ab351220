"""A repository as a library to be read: modules are found below its root, whatever they are called."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from omni_kit.files import files_matching
from omni_kit.pysource.library import Library

REPOSITORY = "repository"
_SKIPPED = frozenset({"__pycache__", "node_modules", "site-packages", "build", "dist"})


@dataclass(frozen=True)
class Repository(Library):
    """The files of a model's authors.

    Attributes:
        name: always "repository".
        root: its folder; modules are named from there, or from `src` below it.
        own: the package in it that is the authors', where others lie beside it; all of it without one.
    """

    own: Path | None = None

    @cached_property
    def version(self) -> str:
        """Authors' code is read as it lies there."""
        return "unknown"

    @cached_property
    def places(self) -> tuple[Path, ...]:
        """The folders that imports start from, as somebody who runs the code would have them on the path."""
        return tuple(place for place in (self.root, self.root / "src") if place.is_dir())

    @cached_property
    def files(self) -> tuple[Path, ...]:
        """Every file of Python in it, in order; links that lead out of it, and what is built or hidden, left out."""
        found = (
            file
            for file in files_matching(self.own or self.root, "**/*.py")
            if file.resolve().is_relative_to(self.root)
        )
        return tuple(file for file in found if not _skipped(file.relative_to(self.root)))

    def module_file(self, module: str) -> Path | None:
        """The file of a dotted module below one of the places; None of what the authors did not write."""
        for place in self.places:
            base = place.joinpath(*module.split("."))
            for candidate in (base.with_suffix(".py"), base / "__init__.py"):
                if module and candidate.is_file() and candidate.resolve().is_relative_to(self.root):
                    return candidate
        return None

    def module_name(self, file: Path) -> str:
        """The dotted name of a file, from the innermost of the places."""
        place = next(place for place in reversed(self.places) if file.is_relative_to(place))
        parts = file.relative_to(place).with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _skipped(place: Path) -> bool:
    return any(part in _SKIPPED or part.startswith(".") for part in place.parts)


def repository_of(file: Path) -> Repository:
    """The repository that a file belongs to: the folder above its outermost package."""
    folder = file.resolve().parent
    while (folder / "__init__.py").is_file() and folder != folder.parent:
        folder = folder.parent
    above = folder.parent
    return Repository(REPOSITORY, above if folder.name == "src" else folder)
