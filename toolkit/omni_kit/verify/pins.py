"""What a verdict hangs on: the integration's files, upstream's, versions, and the machine."""

import hashlib
import os
import platform
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from omni_kit import __version__
from omni_kit.errors import BadInput
from omni_kit.isolation.confinement import can_confine
from omni_kit.targets.sides import Candidate
from omni_kit.upstream.subject import open_name, open_source

_NOT_READ = frozenset({"__pycache__", ".git", ".ruff_cache", ".pytest_cache", ".mypy_cache", ".omni-kit-cache"})
_LIBRARIES = ("torch", "transformers", "diffusers", "safetensors")


def pins(path: Path, candidate: Candidate | None, device: str) -> dict[str, Any]:
    """The pins of a verdict, JSON-ready; `confined`: upstream's answers were closed to the integration's process."""
    source = candidate.source if candidate is not None else ""
    needed = [*_LIBRARIES, *(candidate.requires if candidate is not None else ())]
    return {
        "files": digest(files_of(path)),
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
    """The files of a directory that make it what it is, in order."""
    found = (file for file in path.rglob("*") if file.is_file() and not _NOT_READ & set(file.parts))
    return sorted(found)


def digest(files: Iterable[Path]) -> dict[str, str]:
    """SHA-256 of each file, by its path relative to the first one's directory."""
    listed = list(files)
    root = Path(os.path.commonpath(listed)) if listed else Path()
    root = root.parent if root.is_file() else root
    return {file.relative_to(root).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest() for file in listed}


def own_digest() -> str:
    """SHA-256 over omni-kit's and the rules' own code: an edited judge is another judge."""
    import omni_checkers
    import omni_kit

    total = hashlib.sha256()
    for package in (omni_kit, omni_checkers):
        for file in sorted(Path(str(package.__file__)).parent.rglob("*.py")):
            total.update(file.read_bytes())
    return total.hexdigest()


def _config_digest(source: str) -> str:
    """Of the config that the toy is made from; of its name, where that is a class or a model_type."""
    file = Path(source)
    data = file.read_bytes() if source and file.is_file() else source.encode()
    return hashlib.sha256(data).hexdigest()


def _upstream_digest(source: str) -> str:
    """Of upstream's file that defines the model; empty where that cannot be told."""
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
