"""Finds the data that travels with the package: templates, skills and reference models."""

from pathlib import Path

from omni_kit.errors import BadInput

_PACKAGE = Path(__file__).resolve().parent
_CHECKOUT = _PACKAGE.parents[1]


def resource_dir(name: str) -> Path:
    """Return the directory of `name` ("templates", "skills", "reference_models").

    In a wheel it lies inside the package, skills where installers of agents' skills look for them; in a checkout or an
    editable install at the root of the repository.

    Raises:
        BadInput: neither place has it.
    """
    for candidate in (_PACKAGE / "data" / name, _PACKAGE / ".agents" / name, _CHECKOUT / name):
        if candidate.is_dir():
            return candidate
    raise BadInput(f"the installation has no {name}/ directory", "reinstall omni-kit")
