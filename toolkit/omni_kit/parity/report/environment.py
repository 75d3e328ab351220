"""Environment of a comparison: everything its figures may depend on."""

import os
import platform
from importlib import metadata

from omni_kit import __version__
from omni_kit.targets.registry import targets
from omni_kit.upstream.subject import DIFFUSERS, TRANSFORMERS

_PACKAGES = ("torch", TRANSFORMERS, DIFFUSERS, "safetensors")


def versions() -> dict[str, str]:
    """Package -> version, of those that are installed; Python, omni-kit and what targets require among them."""
    found = {"omni-kit": __version__, "python": platform.python_version()}
    required = (need.name for target in targets().values() for need in target.requirements)
    for package in dict.fromkeys([*_PACKAGES, *required]):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def machine() -> dict[str, str]:
    """Return the kind of this machine."""
    return {"system": platform.platform(terse=True), "processor": platform.machine(), "cores": str(os.cpu_count())}
