"""VeOmni's package on disk: its root, its version, its model directories, and what it registers."""

from functools import cache
from pathlib import Path

from omni_kit.errors import BadInput
from omni_kit.targets import Checkout
from omni_kit.targets.veomni.model_dir import find_model_dir
from omni_kit.upstream.library import Library

MODELS = "veomni/models/transformers"


def find_checkout(path: Path) -> Checkout | None:
    """The checkout whose root, or whose package directory, is `path`."""
    for root in (path, path.parent):
        package = root / "veomni"
        if (package / "models" / "transformers" / "__init__.py").is_file() and path in (root, package):
            return Checkout(root, package, Library("veomni", package).version)
    return None


def model_dirs(path: Path) -> list[Path]:
    """Model directories at `path`: itself, or those of a checkout; sorted."""
    checkout = find_checkout(path)
    if checkout is not None:
        found = [entry for entry in sorted((checkout.root / MODELS).iterdir()) if (entry / "__init__.py").is_file()]
        return [entry for entry in found if _is_model_dir(entry)]
    return [path] if _is_model_dir(path) else []


@cache
def shipped_model_types() -> frozenset[str]:
    """The model_types that the installed VeOmni registers itself; empty when it is not installed."""
    from importlib.util import find_spec

    spec = find_spec("veomni")
    if spec is None or not spec.submodule_search_locations:
        return frozenset()
    package = Path(next(iter(spec.submodule_search_locations)))
    return frozenset(key for entry in model_dirs(package) for key in find_model_dir(entry).registered)


def _is_model_dir(path: Path) -> bool:
    try:
        return bool(find_model_dir(path).registered)
    except BadInput:
        return False
