"""Installed and importable packages, the commands that need them, and the fix for each problem."""

import importlib.metadata
import shlex
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from packaging.requirements import Requirement as Specified

from omni_kit.errors import OmniKitError
from omni_kit.formatting import ruff_binary
from omni_kit.isolation.importing import ImportProblem, imported
from omni_kit.isolation.programs import program_beside, run_program
from omni_kit.targets.protocol import Requirement, Target
from omni_kit.targets.registry import chosen, faults
from omni_kit.targets.versions import broken_pins, unmet


@dataclass(frozen=True)
class Component:
    """One thing that omni-kit or a target uses.

    Attributes:
        status: "ok", "missing", "broken" where it is installed and cannot be imported, or "other version".
        fix: the command that installs it; empty when all is well.
        problem: why it is broken, or which version is needed; empty when all is well, or when it is not there.
    """

    name: str
    version: str | None
    needed_by: str
    status: str
    fix: str
    problem: str = ""


_BASE = ("transformers", "diffusers", "libcst", "safetensors", "huggingface-hub")
_ASKING = 10.0  # seconds that a program may take to print its version


def examine(target: str | None = None) -> list[Component]:
    """Looks at the environment, for one target or for all; imports are tried in a process of their own.

    Raises:
        BadInput: there is no such target.
    """
    own = [Requirement(name, "everything", "pip install omni-kit") for name in _BASE]
    theirs = [
        replace(needed, needed_by=f"{item.name}: {needed.needed_by}")
        for item in chosen(target)
        for needed in item.requirements
        if target is not None or not needed.apart
    ]
    looked_at = [(needed, _package(needed.name, needed.needed_by, needed.install)) for needed in (*own, *theirs)]
    problems = imported(list(dict.fromkeys(_module(needed) for needed, found in looked_at if found.status == "ok")))
    installs = {_module(needed): needed.install for needed in (*own, *theirs)}
    tried = [_tried(needed, found, problems.get(_module(needed)), installs) for needed, found in looked_at]
    tried = _one_fix_a_cause(tried, target)
    python = Component("python", sys.version.split()[0], "everything", "ok", "")
    unusable = [_unusable(name, why) for name, why in faults().items() if target in (None, name)]
    return [
        python,
        *tried[: len(own)],
        _program("ruff", "new-model, patchgen", ruff_binary),
        *_type_checker(),
        *tried[len(own) :],
        *(row for item in chosen(target) for row in _other_versions(item, asked=target is not None)),
        *unusable,
    ]


def _one_fix_a_cause(tried: list[Component], target: str | None) -> list[Component]:
    """Components that fail as a library fails get the library's fix: its fitting version, else what it requires."""
    pinned = {pin.library: pin.install for item in chosen(target) if target for pin, _ in broken_pins(item)}
    for library in [one for one in tried if one.status == "broken"]:
        needed = [one for one in unmet(library.name) if Specified(one).name in library.problem]
        fix = pinned.get(library.name) or (f"pip install {shlex.join(needed)}" if needed else "")
        if not fix:
            continue
        why = f" ({library.name} {library.version} requires {', '.join(needed)})" if needed else ""
        tried = [
            replace(one, fix=fix, problem=f"{one.problem}{why}") if one.problem == library.problem else one
            for one in tried
        ]
    return tried


def refused(needed: Requirement, found: Component) -> str:
    """Return why an installed version is not accepted; empty if it is."""
    prefixes = needed.accepts() if needed.accepts is not None and found.version else ()
    fits = any(found.version == one or str(found.version).startswith(f"{one}.") for one in prefixes)
    return "" if fits or not prefixes else f"{needed.needed_by} accepts {', '.join(prefixes)}, not {found.version}"


def _other_versions(target: Target, *, asked: bool) -> list[Component]:
    """Return upstream's libraries in a version that a target does not take; not of one that goes into its own
    environment.
    """
    own = target.requirements[0] if target.requirements else Requirement(target.name, "", "")
    if not asked and own.apart and _package(own.name, "", "").status == "missing":
        return []
    return [
        Component(pin.library, installed, target.name, "other version", pin.install, pin.against(installed))
        for pin, installed in broken_pins(target)
    ]


def _module(needed: Requirement) -> str:
    return needed.module or needed.name.replace("-", "_")


def _unusable(name: str, why: str) -> Component:
    """Return a target that is registered and that nothing can be done with."""
    return Component(
        name, None, f"the target {name}", "missing", f"fix or uninstall the package that provides it: {why}"
    )


def _package(name: str, needed_by: str, fix: str) -> Component:
    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return Component(name, None, needed_by, "missing", fix)
    return Component(name, version, needed_by, "ok", "")


def _tried(
    needed: Requirement, found: Component, problem: ImportProblem | None, installs: Mapping[str, str]
) -> Component:
    """Return the component after its import, with the narrowest command: what it lacks, another version, or itself
    again.
    """
    if problem is not None:
        fix = installs.get(problem.lacks, f"pip install {problem.lacks}") if problem.lacks else _again(found)
        return replace(found, status="broken", fix=fix, problem=problem.text)
    if why := refused(needed, found):
        return replace(found, status="broken", fix=needed.install, problem=why)
    return found


def _again(found: Component) -> str:
    """Return the command that installs one package again, in its version, and no other."""
    version = f"=={found.version.partition('+')[0]}" if found.version else ""
    return f"pip install --force-reinstall --no-deps {found.name}{version}"


def _program(name: str, needed_by: str, binary: Callable[[], str | None]) -> Component:
    """Run `--version`: a package's metadata stays when its program is gone."""
    fix = f"pip install {name}"
    found = _package(name, needed_by, fix)
    try:
        program = binary()
    except OmniKitError:
        program = None
    if program is None:
        if found.status == "missing":
            return found
        return replace(found, status="broken", fix=_again(found), problem="its program is missing")
    try:
        done = run_program([program, "--version"], timeout=_ASKING)
        problem = f"`--version` ends with code {done.code}" if done.code else ""
    except OSError as error:
        problem = f"{type(error).__name__}: {error}"
    if problem:
        return replace(found, status="broken", fix=_again(found), problem=problem)
    return replace(found, version=found.version or "on PATH", status="ok", fix="")


def _ty() -> str | None:
    return program_beside("ty")


def _type_checker() -> list[Component]:
    """Return the optional type checker, where its package is installed."""
    found = _program("ty", "check --level import", _ty)
    return [] if found.status == "missing" else [found]
