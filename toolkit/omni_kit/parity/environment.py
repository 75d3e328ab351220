"""Where a comparison ran: what its figures may depend on."""

import os
import platform
from importlib import metadata

from omni_kit import __version__

_PACKAGES = ("torch", "transformers", "diffusers", "veomni", "sglang", "safetensors")


def versions() -> dict[str, str]:
    """Package -> version, of those that are installed; Python and omni-kit among them."""
    found = {"omni-kit": __version__, "python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def machine() -> dict[str, str]:
    """What kind of machine this is."""
    return {"system": platform.platform(terse=True), "processor": platform.machine(), "cores": str(os.cpu_count())}
