"""A version of a library, by its number or its place."""

import hashlib
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

from omni_kit.errors import BadInput, MissingRequirement, OmniKitError
from omni_kit.files import cache_directory
from omni_kit.isolation.programs import run_program
from omni_kit.patchgen.locate import unpacked_library
from omni_kit.pysource.library import find_library

_TIMEOUT = 600.0


def version_at(library: str, given: str) -> Path:
    """Return the directory of a library's package: at a path, installed, or fetched by pip into the cache.

    Args:
        given: an unpacked version's path, or a version number.

    Raises:
        BadInput: there is no such path or version.
        MissingRequirement: pip cannot fetch it.
    """
    if Path(given).exists():
        return unpacked_library(library, Path(given))
    if not given[:1].isdigit():
        raise BadInput(f"there is no directory {given}", f"pass an unpacked {library}, or a version number")
    try:
        if metadata.version(library) == given:
            return find_library(library).root
    except metadata.PackageNotFoundError:
        pass
    place = cache_directory() / "libraries" / f"{library}-{given}"
    if not (place / library / "__init__.py").is_file():
        _fetch(library, given, place)
    return unpacked_library(library, place)


def companions_of(root: Path) -> list[Path]:
    """Return the directories of a package's requirements that need other versions than the installed ones.

    Those of a fetched package lie next to it; those of another are fetched into the cache. Without a network there are
    none, and importing the package says what it lacks.
    """
    libraries = cache_directory() / "libraries"
    if root.parent.is_relative_to(libraries):
        return [root.parent]
    unfit = sorted(_unfit(root.parent, root.name))
    if not unfit:
        return []
    place = libraries / "needed" / hashlib.sha256(" ".join(unfit).encode()).hexdigest()[:16]
    if not place.is_dir():
        try:
            _install(unfit, place)
        except OmniKitError:
            return []
    return [place]


def needed_by(paths: Mapping[str, Path | None]) -> list[Path]:
    """Return the companions of each library (import name -> path of another version, or None), as `companions_of`."""
    given = [find_library(name, path).root for name, path in paths.items() if path is not None]
    return [place for root in given for place in companions_of(root)]


def _install(wanted: Sequence[str], place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place.parent) as folder:
        fresh = Path(folder) / "fresh"
        _pip(wanted, fresh)
        fresh.rename(place)


def _fetch(library: str, version: str, place: Path) -> None:
    """Install a version into a directory of its own, with those of its requirements that the installed ones refuse."""
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place.parent) as folder:
        fresh = Path(folder) / "fresh"
        _pip([f"{library}=={version}"], fresh)
        unfit = list(_unfit(fresh, library))
        if unfit:
            _pip(unfit, fresh)
        shutil.rmtree(place, ignore_errors=True)
        fresh.rename(place)


def _pip(wanted: Sequence[str], place: Path) -> None:
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(place), *wanted]
    try:
        done = run_program(command, timeout=_TIMEOUT)
    except (OSError, TimeoutError) as why:
        raise MissingRequirement(f"{' '.join(wanted)} cannot be fetched: {why}", " ".join(command[1:])) from why
    if done.code:
        raise BadInput(
            f"pip cannot fetch {' '.join(wanted)}: {done.last_words}", "pass the path of an unpacked package"
        )


def _unfit(place: Path, library: str) -> Iterator[str]:
    """Yield the requirements of an unpacked package that the installed versions do not meet."""
    for found in metadata.distributions(name=library, path=[str(place)]):
        for requirement in map(Requirement, found.requires or ()):
            if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
                continue
            try:
                installed = metadata.version(requirement.name)
            except metadata.PackageNotFoundError:
                continue
            if not requirement.specifier.contains(installed, prereleases=True):
                yield f"{requirement.name}{requirement.specifier}"
