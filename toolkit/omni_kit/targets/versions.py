"""Versions of upstream's libraries that a target accepts, and whether the installed ones are among them.

What the installed target's metadata requires counts; where it requires nothing, what the target declares.
"""

import importlib.metadata
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from omni_kit.errors import BadInput, MissingRequirement
from omni_kit.isolation.importing import imported
from omni_kit.pysource.library import Library, find_library
from omni_kit.targets.protocol import Target

LIBRARIES = ("transformers", "diffusers")
_RESTORED = "omni_kit.targets.removed_names:attempt_restored"


@runtime_checkable
class TakesVersions(Protocol):
    """A target whose metadata does not state every library that it needs in one version."""

    @property
    def versions(self) -> Mapping[str, str]:
        """Library -> what the target takes of it, as a version specifier."""


@dataclass(frozen=True)
class Pin:
    """Versions of a library that a target accepts.

    Attributes:
        owner: the target and its version, as "veomni 0.1.12"; its name alone where it is not installed.
    """

    owner: str
    library: str
    specifier: SpecifierSet

    def takes(self, version: str) -> bool:
        """Return whether a version is among them; one that cannot be read is."""
        try:
            return self.specifier.contains(Version(version), prereleases=True)
        except InvalidVersion:
            return True

    @property
    def install(self) -> str:
        """Return the command that installs a fitting version."""
        wanted = f"{self.library}{self.specifier}"
        return f"pip install {wanted if str(self.specifier).startswith('==') else repr(wanted)}"

    def against(self, version: str, how: str = "is installed") -> str:
        """Return one line about a version that is not among them, and `how` it is here."""
        exact = str(self.specifier).removeprefix("==")
        verb = "pins" if exact != str(self.specifier) else "requires"
        return f"{self.owner} {verb} {self.library} {exact}; {version} {how}"


def pins(target: Target) -> list[Pin]:
    """Return what a target takes of each library, as far as its metadata or the target itself states it."""
    name = target.requirements[0].name if target.requirements else target.name
    owner = f"{name} {version}" if (version := _version(name)) else target.name
    declared = target.versions if isinstance(target, TakesVersions) else {}
    found = ((library, _required(name, library) or declared.get(library, "")) for library in LIBRARIES)
    return [Pin(owner, library, SpecifierSet(wanted)) for library, wanted in found if wanted and library != name]


def broken_pins(target: Target) -> Iterator[tuple[Pin, str]]:
    """Yield the pins that the installed libraries do not meet, with the installed version."""
    for pin in pins(target):
        installed = _version(pin.library)
        if installed and not pin.takes(installed):
            yield pin, installed


def library_for(target: Target, library: str, places: tuple[Path, ...] = ()) -> tuple[Path | None, str]:
    """Return another unpacked version to read where the installed one does not fit, and one line about it.

    Args:
        places: directories of checkouts whose environment may have it.

    Returns:
        (None, "") where the installed version fits.
    """
    for pin, installed in broken_pins(target):
        if pin.library == library:
            found = next(_fitting(pin, (*places, Path(sys.prefix))), None)
            if found is None:
                return None, f"{pin.against(installed)}: the integration is derived from {installed}; {pin.install}"
            return found.root, f"{pin.against(installed)}: {library} {found.version} is read at {found.root}"
    return None, ""


def refuse_what_does_not_run(target: Target, libraries: Sequence[Path] = ()) -> list[str]:
    """Return one line for each pin that is broken, where the target's own package can still be imported.

    Args:
        libraries: directories that are searched before what is installed.

    Raises:
        MissingRequirement: a pin is broken, and the target cannot be imported.
    """
    broken = list(broken_pins(target))
    name = target.requirements[0].name if broken else ""
    found = imported([name], libraries, how=_RESTORED).get(name) if broken else None
    how = "is read" if libraries else "is installed"
    for pin, installed in broken:
        if found is not None:
            needed = unmet(pin.library)
            raise MissingRequirement(
                f"{pin.against(installed, how)}, on which it cannot be imported: {found.text}",
                f"pip install {shlex.join(needed)}" if libraries and needed else pin.install,
            )
    return [f"{pin.against(installed, how)}; {pin.install}" for pin, installed in broken]


def unmet(distribution: str) -> list[str]:
    """Return what a distribution requires of others that are installed in another version, as requirements."""
    found = []
    for line in _requires(distribution):
        try:
            needed = Requirement(line)
        except InvalidRequirement:
            continue
        installed = _version(needed.name)
        applies = needed.marker is None or needed.marker.evaluate({"extra": ""})
        if applies and installed and not needed.specifier.contains(installed, prereleases=True):
            found.append(f"{needed.name}{needed.specifier}")
    return found


def _requires(distribution: str) -> list[str]:
    try:
        return importlib.metadata.requires(distribution) or []
    except importlib.metadata.PackageNotFoundError:
        return []


def _fitting(pin: Pin, places: tuple[Path, ...]) -> Iterator[Library]:
    """Yield what is unpacked in an environment of a place: its site-packages, or NAME-VERSION next to them."""
    for place in places:
        for environment in (place, place / ".venv"):
            for pattern in (f"lib/python*/site-packages/{pin.library}", f"{pin.library}-*/{pin.library}"):
                for root in sorted(environment.glob(pattern)):
                    try:
                        library = find_library(pin.library, root)
                    except BadInput:
                        continue
                    if library.version != "unknown" and pin.takes(library.version):
                        yield library


def _required(distribution: str, library: str) -> str:
    """Return what a distribution requires of a library, exact versions first; extras count."""
    try:
        written = importlib.metadata.requires(distribution) or []
    except importlib.metadata.PackageNotFoundError:
        return ""
    found = [str(one.specifier) for one in map(_requirement, written) if one is not None and one.name == library]
    return next((one for one in found if one.startswith("==")), next(filter(None, found), ""))


def _requirement(text: str) -> Requirement | None:
    try:
        return Requirement(text)
    except InvalidRequirement:
        return None


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""
