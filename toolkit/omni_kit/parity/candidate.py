"""Candidate of a comparison: the integration that a target finds at a path, and its installation requirements."""

import importlib.util
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from omni_kit.errors import BadInput, MissingRequirement
from omni_kit.parity.compare.comparison import listed
from omni_kit.patchgen.check import ungenerated
from omni_kit.targets.protocol import INSTALL_TORCH, Target, handler_of
from omni_kit.targets.registry import find_integrations
from omni_kit.targets.sides import Candidate

Layout = Literal["hub", "memory"]


def find_candidate(path: Path, target: str | None = None) -> Candidate:
    """Return the candidate of `find_owned`."""
    return find_owned(path, target)[1]


def find_owned(path: Path, target: str | None = None) -> tuple[Target, Candidate]:
    """Recognises what lies at `path`: an integration, or a folder that holds one which can be compared.

    Args:
        target: look for one of this framework alone.

    Raises:
        BadInput: no target finds anything to compare, with what each of them lacks. Or the integration
            imports a file that its patch config has not generated yet.
    """
    found: list[tuple[Target, Candidate]] = []
    refused: list[BadInput] = []
    for owner, integration in find_integrations(path, target):
        try:
            found.append((owner, handler_of(owner, integration.kind).candidate(integration.path)))
        except BadInput as error:
            refused.append(error)
        except Exception as error:  # a third party's own mistake
            said = f"{type(error).__name__}: {error}"
            refused.append(BadInput(f"{owner.name} cannot say how to compare {integration.path}: {said}"))
    if not found:
        raise refused[0]
    if len(found) > 1:
        names = listed([candidate.path.name for _, candidate in found])
        raise BadInput(f"{path} holds {len(found)} integrations", f"pass the directory of one of them: {names}")
    place = found[0][1].path
    if place.is_dir() and (absent := ungenerated(place)):
        command = shlex.join(["omni-kit", "patchgen", "run", str(place)])
        raise BadInput(f"{absent[0]}, which the integration imports, has not been generated", f"run: {command}")
    return found[0]


def require(packages: Mapping[str, str], needed_by: str = "parity") -> None:
    """Check that torch and other packages are installed, without importing them.

    Args:
        packages: import name -> the command that installs it.
        needed_by: the command, for the message.

    Raises:
        MissingRequirement: the first one that is not, with the command that installs it.
    """
    for package, command in {"torch": INSTALL_TORCH, **packages}.items():
        if importlib.util.find_spec(package) is None:
            raise MissingRequirement(f"{needed_by} needs {package}, which is not installed", command)
