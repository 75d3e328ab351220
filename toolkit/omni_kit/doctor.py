"""What is installed, what needs it, and the command that mends what is missing."""

import importlib.metadata
import shutil
import sys
from dataclasses import dataclass

from omni_kit.targets.registry import chosen, faults


@dataclass(frozen=True)
class Component:
    """One thing that omni-kit or a target uses.

    Attributes:
        status: "ok" or "missing".
        fix: the command that installs it; empty when it is there.
    """

    name: str
    version: str | None
    needed_by: str
    status: str
    fix: str


_BASE = ("transformers", "diffusers", "libcst", "safetensors", "huggingface-hub")


def examine(target: str | None = None) -> list[Component]:
    """Looks at the environment, for one target or for all.

    Raises:
        BadInput: there is no such target.
    """
    components = [Component("python", sys.version.split()[0], "everything", "ok", "")]
    components += [_package(name, "everything", "pip install omni-kit") for name in _BASE]
    components.append(_ruff())
    for item in chosen(target):
        components += [_package(r.name, f"{item.name}: {r.needed_by}", r.install) for r in item.requirements]
    return components + [_unusable(name, why) for name, why in faults().items() if target in (None, name)]


def _unusable(name: str, why: str) -> Component:
    """A target that is registered and that nothing can be done with."""
    return Component(name, None, f"the target {name}", "missing", f"mend or uninstall what brings it: {why}")


def _package(name: str, needed_by: str, fix: str) -> Component:
    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return Component(name, None, needed_by, "missing", fix)
    return Component(name, version, needed_by, "ok", "")


def _ruff() -> Component:
    found = _package("ruff", "new-model, patchgen", "pip install ruff")
    if found.status == "missing" and shutil.which("ruff"):
        return Component("ruff", "on PATH", found.needed_by, "ok", "")
    return found
