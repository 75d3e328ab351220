"""The pins of a verdict: the integration's files, upstream's files, versions and the machine."""

import hashlib
import os
import platform
import sysconfig
from collections.abc import Iterable, Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from omni_kit import __version__
from omni_kit.errors import BadInput
from omni_kit.isolation.confinement import can_confine
from omni_kit.targets.sides import Candidate
from omni_kit.upstream.subject import open_name, open_source

_NOT_READ = frozenset({"__pycache__", ".git", ".ruff_cache", ".pytest_cache", ".mypy_cache", ".omni-kit-cache"})
_OF_THE_SYSTEM = tuple(map(Path, ("/proc", "/sys", "/dev", "/etc", "/usr/share", "/usr/lib")))
_LIBRARIES = ("torch", "transformers", "diffusers", "safetensors")


def pins(path: Path, candidate: Candidate | None, device: str) -> dict[str, Any]:
    """Return the pins of a verdict, JSON-ready; `confined`: the candidate's process could not read upstream's
    outputs."""
    source = candidate.source if candidate is not None else ""
    needed = [*_LIBRARIES, *(candidate.requires if candidate is not None else ())]
    return {
        "files": pinned(files_of(path), path),
        "config": _config_digest(source),
        "upstream": _upstream_digest(source),
        "omni_kit": {"version": __version__, "code": own_digest()},
        "versions": {name: found for name in needed if (found := _version(name))},
        "machine": {
            "system": platform.platform(), "python": platform.python_version(), "processors": os.cpu_count(),
            "device": _device(device), "confined": can_confine(),
        },
    }  # fmt: skip


def files_of(path: Path) -> list[Path]:
    """Return the files of a directory that define the integration, sorted."""
    found = (file for file in path.rglob("*") if file.is_file() and not _NOT_READ & set(file.relative_to(path).parts))
    return sorted(found)


def pinned(files: Iterable[Path], root: Path) -> dict[str, str]:
    """Return the SHA-256 of each file that can be read, by its path relative to `root`."""
    return {os.path.relpath(file, root): found for file in files if (found := digest(file))}


def own_files(files: Iterable[Path]) -> Iterator[Path]:
    """Return those files that no installed version, no system and no digest of omni-kit's code stands for."""
    installed = [*map(Path, sysconfig.get_paths().values()), *_OF_THE_SYSTEM, *_packages()]
    closed = [place.resolve() for place in installed]
    return (file for file in files if not any(file.is_relative_to(place) for place in closed))


def digest(file: Path) -> str:
    """Return the SHA-256 of a file; empty if there is none that can be read."""
    try:
        return hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else ""
    except (OSError, ValueError):
        return ""


def own_digest() -> str:
    """SHA-256 over omni-kit's and the rules' own code: an edited judge is another judge."""
    total = hashlib.sha256()
    for package in _packages():
        for file in sorted(package.rglob("*.py")):
            total.update(file.read_bytes())
    return total.hexdigest()


def _packages() -> list[Path]:
    import omni_checkers
    import omni_kit

    return [Path(str(package.__file__)).parent for package in (omni_kit, omni_checkers)]


def _config_digest(source: str) -> str:
    """Of the config that the toy is made from; of its name, where that is a class or a model_type."""
    file = Path(source)
    data = file.read_bytes() if source and file.is_file() else source.encode()
    return hashlib.sha256(data).hexdigest()


def _upstream_digest(source: str) -> str:
    """Of upstream's file that defines the model; empty if that cannot be determined."""
    try:
        subject = open_source(source) if Path(source).is_absolute() else open_name(source)
        model = subject.loaded if source else None
    except BadInput:
        return ""
    return hashlib.sha256(model.source.path.read_bytes()).hexdigest() if model is not None else ""


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def _device(device: str) -> str:
    if device != "cuda":
        return device
    import torch

    return str(torch.cuda.get_device_name()) if torch.cuda.is_available() else device
