"""Targets: one module a framework. It knows where things live there and what they are called, by version.

A third party adds one through the entry point group `omni_kit.targets`; its value is a `Target` instance.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Literal, Protocol

from omni_kit.errors import BadInput
from omni_kit.layout import LayoutVerdict
from omni_kit.targets.builder import Candidate
from omni_kit.upstream.model import UpstreamModel
from omni_kit.upstream.profile import ModelProfile

Style = Literal["in-tree", "plugin"]
INSTALL_TORCH = "pip install torch accelerate"


@dataclass(frozen=True)
class Requirement:
    """Something that must be installed, and the command that does it."""

    name: str
    needed_by: str
    install: str


@dataclass(frozen=True)
class Checkout:
    """A framework's package, installed or checked out.

    Attributes:
        root: the directory that holds the package.
        package: the package directory.
    """

    root: Path
    package: Path
    version: str


@dataclass(frozen=True)
class Request:
    """What the user asked new-model for.

    Attributes:
        name: the integration's name, a Python identifier.
        source: SOURCE as typed, to be recorded.
        into: the directory to write to.
        verdict: the layout of the checkpoint; None when no weights were given.
    """

    name: str
    source: str
    into: Path
    style: Style
    model: UpstreamModel
    profile: ModelProfile
    verdict: LayoutVerdict | None


@dataclass(frozen=True)
class Decision:
    """One choice that the scaffold made, with the reason and where it was read."""

    what: str
    choice: str
    reason: str
    evidence: str


@dataclass(frozen=True)
class Todo:
    """What a person still has to do, at a place in the written files."""

    path: str
    line: int
    what: str


@dataclass(frozen=True)
class NewFile:
    """A file to be written, relative to `into`; from a template of the target, or a text as it is."""

    path: str
    template: str | None = None
    text: str = ""
    context: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ListEntry:
    """An edit: `element` becomes an element of the list or tuple `name` in `path`, unless it is there."""

    path: str
    name: str
    element: str


@dataclass(frozen=True)
class ImportEntry:
    """An edit: `from <module> import <name>` in `path`, added to the statement that imports its siblings."""

    path: str
    module: str
    name: str


@dataclass(frozen=True)
class Plan:
    """Everything that an integration consists of."""

    files: tuple[NewFile, ...]
    edits: tuple[ListEntry | ImportEntry, ...]
    decisions: tuple[Decision, ...]
    todo: tuple[Todo, ...]
    next: tuple[str, ...]


class Target(Protocol):
    """The six questions that a framework answers."""

    @property
    def name(self) -> str: ...

    @property
    def kinds(self) -> frozenset[str]:
        """The kinds of model that it has templates for."""

    @property
    def rules(self) -> str:
        """The package of its rules."""

    @property
    def requirements(self) -> tuple[Requirement, ...]:
        """What must be installed, for which command, and how."""

    def detect(self, path: Path) -> Checkout | None:
        """The checkout of this framework that `path` is the root of, or None."""

    def plan(self, request: Request) -> Plan:
        """The files and edits of an integration.

        Raises:
            BadInput: the request cannot be met; nothing was written.
        """

    def converter(self, name: str, path: str, verdict: LayoutVerdict) -> NewFile | str:
        """The module that brings a checkpoint of this layout into its models, or in one line why none is needed.

        Raises:
            BadInput: the layout cannot be brought there.
        """

    def model_dirs(self, path: Path) -> list[Path]:
        """The model directories at or below `path` that its rules judge; empty when it is not this framework's."""

    def candidate(self, path: Path) -> Candidate:
        """The integration in the directory `path`, with how both sides of a comparison are built.

        Raises:
            BadInput: it holds no integration of this framework; what is missing.
        """


def targets() -> dict[str, Target]:
    """All targets by name, the built-in first."""
    from omni_kit.targets.veomni import VeOmni

    found: dict[str, Target] = {"veomni": VeOmni()}
    for entry in entry_points(group="omni_kit.targets"):
        found.setdefault(entry.name, entry.load())
    return found


def get_target(name: str) -> Target:
    """A target by name.

    Raises:
        BadInput: there is none of that name.
    """
    known = targets()
    if name not in known:
        raise BadInput(f"unknown target '{name}'", f"one of {', '.join(known)}")
    return known[name]
