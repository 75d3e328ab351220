"""What is compared: an integration, how its side is built, and what must be installed for it."""

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from omni_kit.errors import MissingRequirement
from omni_kit.targets import INSTALL_TORCH
from omni_kit.targets.veomni import INSTALL_VEOMNI
from omni_kit.targets.veomni.model_dir import find_model_dir

Layout = Literal["hub", "memory"]
TOY_CONFIG = "toy_config.json"


@dataclass(frozen=True)
class Candidate:
    """An integration that can be compared with upstream.

    Attributes:
        path: its directory.
        source: what its toy is made from: a toy_config.json or a model_type.
        builder: "module:Class" of its side, made in the candidate's process.
        options: what that builder is opened with.
        framework: the package of the target; the reference process must never import it.
        requires: package -> the command that installs it.
        editable: lies outside the framework, so that its files may change between two runs in one process.
    """

    path: Path
    source: str
    builder: str
    options: Mapping[str, Any]
    framework: str
    requires: Mapping[str, str] = field(default_factory=dict)
    editable: bool = True


def find_candidate(path: Path) -> Candidate:
    """Recognises what lies at `path`.

    Raises:
        BadInput: nothing that can be compared.
    """
    found = find_model_dir(path)
    toy = found.path / TOY_CONFIG
    requires = {} if found.style == "in-tree" else {"veomni": INSTALL_VEOMNI}
    return Candidate(
        path=found.path,
        source=str(toy) if toy.is_file() else next(iter(found.registered)),
        builder="omni_kit.targets.veomni.build:VeOmniBuilder",
        options={
            "path": str(found.path),
            "style": found.style,
            "import_name": found.import_name,
            "sys_path": str(found.sys_path),
            "registered": list(found.registered),
        },
        framework="veomni",
        requires=requires,
        editable=found.style == "plugin",
    )


def require(packages: Mapping[str, str]) -> None:
    """Checks that packages are installed, without importing them.

    Raises:
        MissingRequirement: the first one that is not, with the command that installs it.
    """
    for package, command in {"torch": INSTALL_TORCH, **packages}.items():
        if importlib.util.find_spec(package) is None:
            raise MissingRequirement(f"parity needs {package}, which is not installed", command)
