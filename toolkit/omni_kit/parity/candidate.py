"""What is compared: the integration that a target finds at a path, and what must be installed for it."""

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from omni_kit.errors import BadInput, MissingRequirement
from omni_kit.targets import INSTALL_TORCH, targets
from omni_kit.targets.builder import Candidate

Layout = Literal["hub", "memory"]


def find_candidate(path: Path) -> Candidate:
    """Recognises what lies at `path`.

    Raises:
        BadInput: no target finds anything that can be compared; what the first target misses is said.
    """
    missed: list[BadInput] = []
    for target in targets().values():
        try:
            return target.candidate(path)
        except BadInput as error:
            missed.append(error)
    raise missed[0]


def require(packages: Mapping[str, str]) -> None:
    """Checks that packages are installed, without importing them.

    Raises:
        MissingRequirement: the first one that is not, with the command that installs it.
    """
    for package, command in {"torch": INSTALL_TORCH, **packages}.items():
        if importlib.util.find_spec(package) is None:
            raise MissingRequirement(f"parity needs {package}, which is not installed", command)
