"""Packages that a repository requires in another version than the one that is installed."""

import re
from collections.abc import Collection, Iterator
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version

from omni_kit.files import files_matching
from omni_kit.pysource.source import read_text
from omni_kit.upstream.repositories.repository import Repository

_FILES = ("requirements*.txt", "*/requirements*.txt", "pyproject.toml", "setup.py", "setup.cfg", "environment*.y*ml")
_PIN = re.compile(r"^[\s\"'\-\[]*(?P<name>[A-Za-z0-9_.-]+?)(\[[\w,]+\])?\s*==\s*(?P<version>\d+(\.\d+)*)", re.MULTILINE)


def other_versions(repository: Repository, packages: Collection[str]) -> str:
    """Return which of these packages the repository pins to another major version: "transformers==4.45.2 (installed:
    5.9.0)".
    """
    return ", ".join(dict.fromkeys(_other(repository, packages)))


def _other(repository: Repository, packages: Collection[str]) -> Iterator[str]:
    for pattern in _FILES:
        for file in files_matching(repository.root, pattern):
            text = ""
            with suppress(OSError):
                text = read_text(file)
            for found in _PIN.finditer(text):
                name = found["name"].replace("-", "_").lower()
                installed = _installed(name) if name in packages else ""
                if installed and installed.split(".")[0] != found["version"].split(".")[0]:
                    yield f"{name}=={found['version']} (installed: {installed})"


def _installed(name: str) -> str:
    with suppress(PackageNotFoundError):
        return version(name)
    return ""
