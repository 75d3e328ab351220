"""A version of a library, by its number or its place."""

import sys
from importlib import metadata
from pathlib import Path

from omni_kit.errors import BadInput, MissingRequirement
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
        raise BadInput(f"there is no directory {given}", f"give an unpacked {library}, or a version number")
    try:
        if metadata.version(library) == given:
            return find_library(library).root
    except metadata.PackageNotFoundError:
        pass
    place = cache_directory() / "libraries" / f"{library}-{given}"
    if not (place / library / "__init__.py").is_file():
        _fetch(library, given, place)
    return unpacked_library(library, place)


def _fetch(library: str, version: str, place: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--target",
        str(place),
        f"{library}=={version}",
    ]
    place.parent.mkdir(parents=True, exist_ok=True)
    try:
        done = run_program(command, timeout=_TIMEOUT)
    except (OSError, TimeoutError) as why:
        raise MissingRequirement(f"{library} {version} cannot be fetched: {why}", " ".join(command[1:])) from why
    if done.code:
        raise BadInput(
            f"pip cannot fetch {library} {version}: {done.last_words}", f"give the path of an unpacked {library}"
        )
