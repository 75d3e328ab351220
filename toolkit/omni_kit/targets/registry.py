"""Registry of targets: every package next to this file that has a TARGET, and those that other projects register.

A third party registers one through the entry point group `omni_kit.targets`; its value is a `Target`. One that cannot
be loaded, or lacks what a target answers, is left out, and `faults` says why: the others continue.
"""

import importlib
import pkgutil
import re
from collections.abc import Callable, Iterator
from functools import cache, partial
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from omni_kit.errors import BadInput
from omni_kit.targets.protocol import Integration, KindHandler, Target

GROUP = "omni_kit.targets"
_HERE = Path(__file__).parent
_HINT = "pass a model directory, or the root of a checkout"
_NO_DIRECTORY = "is not a directory"
# What a target and each of its handlers must have: the names of their protocols.
_OF_TARGET = tuple(name for name in vars(Target) if not name.startswith("_"))
_OF_HANDLER = tuple(name for name in vars(KindHandler) if not name.startswith("_"))


def targets() -> dict[str, Target]:
    """Return all targets by name: the built-in ones first, in alphabetical order."""
    return _loaded()[0]


def faults() -> dict[str, str]:
    """Target that cannot be used -> why, in one line."""
    return _loaded()[1]


def forget() -> None:
    """Looks for targets again the next time that somebody asks."""
    _loaded.cache_clear()


@cache
def _loaded() -> tuple[dict[str, Target], dict[str, str]]:
    found: dict[str, Target] = {}
    wrong: dict[str, str] = {}
    for name, load in _offered():
        try:
            target = load()
            why = _lacking(target) or ("a target of that name already exists" if target.name in found else "")
        except Exception as error:  # a third party's own code
            why = f"it cannot be loaded: {type(error).__name__}: {error}"
        if why:
            wrong[name] = " ".join(why.split())
        else:
            found[target.name] = target
    return found, wrong


def _offered() -> Iterator[tuple[str, Callable[[], Any]]]:
    """Name -> what loads it, of everything that may be a target."""
    for name in sorted(info.name for info in pkgutil.iter_modules([str(_HERE)]) if info.ispkg):
        module = importlib.import_module(f"omni_kit.targets.{name}")
        if hasattr(module, "TARGET"):
            yield name, partial(getattr, module, "TARGET")
    for entry in entry_points(group=GROUP):
        yield entry.name, entry.load


def _lacking(target: Any) -> str:
    """Return the missing attribute of a target, or of one of its handlers; empty if none is missing."""
    if isinstance(target, type):
        return f"{target.__name__} is a class: TARGET must be an instance"
    if missing := [name for name in _OF_TARGET if not hasattr(target, name)]:
        return f"{type(target).__name__} has no '{missing[0]}', which a Target must have"
    for kind, handler in target.kinds.items():
        if missing := [name for name in _OF_HANDLER if not hasattr(handler, name)]:
            return f"{type(handler).__name__}, its handler of '{kind}', has no '{missing[0]}'"
    return ""


def get_target(name: str) -> Target:
    """Return a target by name.

    Raises:
        BadInput: there is none of that name, or it cannot be used.
    """
    if name in (known := targets()):
        return known[name]
    if name in faults():
        raise BadInput(
            f"the target '{name}' cannot be used: {faults()[name]}", "fix or uninstall the package that provides it"
        )
    raise BadInput(f"unknown target '{name}'", f"one of {', '.join(known)}")


def chosen(name: str | None) -> list[Target]:
    """Return the target of that name; all of them where no name is given.

    Raises:
        BadInput: there is none of that name.
    """
    return [get_target(name)] if name else list(targets().values())


def integration_at(path: Path, owner: Target) -> Integration | None:
    """Return the result of `Target.at`; None also if it raises, because every target sees every path."""
    try:
        return owner.at(path)
    except Exception:
        return None


def find_integrations(path: Path, target: str | None = None) -> list[tuple[Target, Integration]]:
    """Return the integrations at or below a path, with the framework of each.

    Args:
        target: look for those of this framework alone.

    Raises:
        BadInput: the path does not exist, or there is none; what each framework misses.
    """
    if not path.exists():
        raise BadInput(f"{path} does not exist", _HINT)
    if path.is_dir() and not any(path.iterdir()):
        raise BadInput(f"{path} is empty", _HINT)
    found: list[tuple[Target, Integration]] = []
    missed: dict[str, BadInput] = {}
    for owner in chosen(target):
        try:
            found += [(owner, integration) for integration in owner.find(path.resolve())]
        except BadInput as error:
            missed[owner.name] = error
        except Exception as error:  # its own mistake must not keep the others from looking
            missed[owner.name] = BadInput(f"it cannot identify the directory: {type(error).__name__}: {error}")
    if not found:
        raise _nothing(path, missed)
    return found


def _nothing(path: Path, missed: dict[str, BadInput]) -> BadInput:
    """Return one error for what all targets miss; with one target, its own words. Of a file those count that
    take files.
    """
    taken = {name: error for name, error in missed.items() if not error.message.endswith(_NO_DIRECTORY)}
    missed = taken if path.is_file() and taken else missed
    if len(missed) == 1:
        return next(iter(missed.values()))
    places = re.compile(rf"({re.escape(str(path))}|{re.escape(str(path.resolve()))}) ")
    said = "; ".join(f"{name}: {places.sub('', error.message, count=1)}" for name, error in missed.items())
    return BadInput(f"{path} contains no integration: {said}", _HINT)
