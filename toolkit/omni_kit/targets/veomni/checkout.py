"""VeOmni's package on disk: its root, and what it registers itself."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from omni_kit.targets.veomni.model_dir import registered_in

MODELS = "veomni/models/transformers"
DIFFUSION_MODELS = "veomni/models/diffusers"


@dataclass(frozen=True)
class Checkout:
    """VeOmni, installed or checked out.

    Attributes:
        root: the directory that holds the package.
        package: the package directory.
    """

    root: Path
    package: Path


def find_checkout(path: Path) -> Checkout | None:
    """Return the checkout whose root, or whose package directory, is `path`."""
    for root in (path, path.parent):
        package = root / "veomni"
        if (package / "models" / "transformers" / "__init__.py").is_file() and path in (root, package):
            return Checkout(root, package)
    return None


def registrants(models: Path, key: str) -> list[Path]:
    """Return the model directories in a folder that register a key, in order."""
    return [entry for entry in sorted(models.iterdir()) if key in registered_in(entry)]


@cache
def shipped_model_types() -> frozenset[str]:
    """Return the model_types that the installed VeOmni registers itself; empty when it is not installed."""
    return _shipped(MODELS)


@cache
def shipped_diffusers_keys() -> frozenset[str]:
    """Return the keys of diffusion models that the installed VeOmni registers itself; empty when it is not
    installed.
    """
    return _shipped(DIFFUSION_MODELS)


def shipped_package() -> Path | None:
    """Return the directory of the installed VeOmni; None if it is not installed."""
    from importlib.util import find_spec

    spec = find_spec("veomni")
    return Path(next(iter(spec.submodule_search_locations))) if spec and spec.submodule_search_locations else None


def _shipped(where: str) -> frozenset[str]:
    package = shipped_package()
    models = package.parent / where if package is not None else None
    if models is None or not models.is_dir():
        return frozenset()
    return frozenset(key for entry in models.iterdir() for key in registered_in(entry))
