"""Which targets there are: every package beside this file that has a TARGET, and those that other projects register.

A third party registers one through the entry point group `omni_kit.targets`; its value is a `Target`.
"""

import importlib
import pkgutil
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path

from omni_kit.errors import BadInput
from omni_kit.targets.protocol import Integration, Target

GROUP = "omni_kit.targets"
_HERE = Path(__file__).parent


@cache
def targets() -> dict[str, Target]:
    """All targets by name: the built-in ones first, in alphabetical order."""
    packages = sorted(info.name for info in pkgutil.iter_modules([str(_HERE)]) if info.ispkg)
    modules = [importlib.import_module(f"omni_kit.targets.{name}") for name in packages]
    built_in: list[Target] = [module.TARGET for module in modules if hasattr(module, "TARGET")]
    return {target.name: target for target in [*built_in, *(entry.load() for entry in entry_points(group=GROUP))]}


def get_target(name: str) -> Target:
    """A target by name.

    Raises:
        BadInput: there is none of that name.
    """
    known = targets()
    if name not in known:
        raise BadInput(f"unknown target '{name}'", f"one of {', '.join(known)}")
    return known[name]


def chosen(name: str | None) -> list[Target]:
    """The target of that name; all of them where no name is given.

    Raises:
        BadInput: there is none of that name.
    """
    return [get_target(name)] if name else list(targets().values())


def find_integrations(path: Path, target: str | None = None) -> list[tuple[Target, Integration]]:
    """The integrations at or below a path, with the framework of each.

    Args:
        target: look for those of this framework alone.

    Raises:
        BadInput: the path does not exist, or there is none; what each framework misses.
    """
    if not path.exists():
        raise BadInput(f"{path} does not exist", "give a model directory, or the root of a checkout")
    found: list[tuple[Target, Integration]] = []
    missed: list[BadInput] = []
    for owner in chosen(target):
        try:
            found += [(owner, integration) for integration in owner.find(path.resolve())]
        except BadInput as error:
            missed.append(error)
    if not found:
        raise _nothing(path, missed)
    return found


def _nothing(path: Path, missed: list[BadInput]) -> BadInput:
    """One error for what all targets miss; with one target, its own words."""
    if len(missed) == 1:
        return missed[0]
    said = "; ".join(dict.fromkeys(error.message for error in missed))
    return BadInput(f"{path} holds no integration: {said}", "give a model directory, or the root of a checkout")
