"""Interface of a target framework: its integrations, the kinds it takes, and the parts of an integration."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

from omni_kit.errors import BadInput
from omni_kit.layout import LayoutVerdict
from omni_kit.layout.consumer import Consumer
from omni_kit.targets.sides import Candidate
from omni_kit.upstream.kinds import Kind
from omni_kit.upstream.subject import Subject

Style = Literal["in-tree", "plugin"]
TODO_MARK = "TODO(omni-kit)"
"""Mark of the lines of a scaffold that are left to a person."""
TODO_KEY = "_todo"
"""Key of the to-dos in a JSON file of a scaffold, which has no comments."""
INSTALL_TORCH = "pip install torch accelerate"


@dataclass(frozen=True)
class Requirement:
    """Something that must be installed, and the command that does it.

    Attributes:
        name: the distribution.
        needed_by: the command that needs it.
        module: as it is imported; empty if that is the distribution's name.
        apart: it belongs into an environment of its own, and is missed only by who asks for its target.
        accepts: what the beginning of its version must be, read when it is asked; any version without it, or where it
            finds none.
    """

    name: str
    needed_by: str
    install: str
    module: str = ""
    apart: bool = False
    accepts: Callable[[], Sequence[str]] | None = None


@dataclass(frozen=True)
class Request:
    """Request to new-model.

    Attributes:
        name: the integration's name, a Python identifier.
        into: the directory to write to.
        verdict: the layout of the checkpoint; None when no weights passed.
        way: the one that was asked for, of a handler that has several; see `HasVariants`.
        kernels: setting -> kernel, or dotted path in a training file -> value, as measured for such a model; see
            `WritesTraining`.
        class_name: of the model's class; empty for the target's own choice; see `NamesClass`.
        again: what running found for an integration that is there already stays, because nothing runs this time.
    """

    name: str
    into: Path
    style: Style = "plugin"
    verdict: LayoutVerdict | None = None
    way: str = ""
    kernels: Mapping[str, str] = field(default_factory=dict)
    class_name: str = ""
    again: bool = False


@dataclass(frozen=True)
class Decision:
    """One choice that the scaffold made, with the reason and where it was read."""

    what: str
    choice: str
    reason: str
    evidence: str


@dataclass(frozen=True)
class Todo:
    """Step left to a person, at a place in the written files."""

    path: str
    line: int
    what: str


@dataclass(frozen=True)
class NewFile:
    """A file to be written, relative to `into`; from a template of the kind, or a text as it is.

    Attributes:
        template: the whole name of its file, as "model.py.jinja", in the folder of the kind's templates.
    """

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
    """An edit: `from <module> import <name>` in `path`, added to the statement that imports its siblings.

    Attributes:
        made: where there is no such statement, it is made, next to those of other modules in alphabetical order.
    """

    path: str
    module: str
    name: str
    made: bool = False


@dataclass(frozen=True)
class KeyedEntry:
    """An edit: `element` becomes an element of the list that the dict `name` has for `key` in `path`, in its order.

    The list may stand in the dict, be assigned to `name[key]`, or extend it; of several the longest is taken. Where
    there is none, `name[key] = [element]` is made next to its siblings in alphabetical order.
    """

    path: str
    name: str
    key: str
    element: str


@dataclass(frozen=True)
class ItemEntry:
    """An edit: the dict that is assigned to `name` in `path` has `value`, an expression, for `key`.

    The dict may be made of pairs in a list, as an OrderedDict is.
    """

    path: str
    name: str
    key: str
    value: str


@dataclass(frozen=True)
class DefinitionEntry:
    """An edit: the class or the function `name` is defined in `path`, by `text`; in place, where classes are sorted."""

    path: str
    name: str
    text: str


@dataclass(frozen=True)
class PageEntry:
    """An edit: a table of contents in YAML lists the page `local` under `title`, next to its siblings by their titles.

    Attributes:
        beside: what the places of its siblings begin with.
    """

    path: str
    local: str
    title: str
    beside: str


Edit = ListEntry | ImportEntry | KeyedEntry | ItemEntry | DefinitionEntry | PageEntry


@dataclass(frozen=True)
class IntegrationPlan:
    """Everything that an integration consists of.

    Attributes:
        base: its own directory, relative to `into`, with at least one of the files; what it was made from is recorded
            there.
        edits: changes of files that the framework already has.
        todo: what is left to a person, other than the lines of the files that say so themselves; see `TODO_MARK`.
        next: the commands that continue from here.
        rules: the pyproject.toml by which its Python is formatted; ours without one.
        checked: its own checks run on what was written, and what they find is left to do, too.
        derived: makes more files of the texts of those and of what the edits change, by path; templates are named from
            the folder of all of them.
        merged: files that are there already, of which the planned ones have what people changed: they are rewritten.
        replaces: what the framework has itself, with its place, that the integration replaces; empty if nothing.
        confirm: runs upstream's code, and returns the plan with what that shows, unchanged where nothing can run; None
            if nothing is to be run. It raises Refusal if that contradicts what was read.
        simpler: returns the plan without the parts that were made into files of invalid Python, with a to-do that has
            the reason, which it receives; None if there are no such parts.
    """

    base: str
    files: Sequence[NewFile]
    edits: Sequence[Edit] = ()
    decisions: Sequence[Decision] = ()
    todo: Sequence[Todo] = ()
    next: Sequence[str] = ()
    rules: Path | None = None
    checked: bool = False
    derived: Callable[[Mapping[str, str]], Sequence[NewFile]] | None = None
    merged: Sequence[str] = ()
    replaces: str = ""
    confirm: "Callable[[], IntegrationPlan] | None" = None
    simpler: "Callable[[str], IntegrationPlan] | None" = None


@dataclass(frozen=True)
class Integration:
    """An integration on disk.

    Attributes:
        path: its directory, absolute.
        tell_kind: reads what kind it is of, which takes a while; called once, when it is asked for.
    """

    path: Path
    tell_kind: Callable[[], Kind]

    @cached_property
    def kind(self) -> Kind:
        """Kind of the model or pipeline that it integrates.

        Raises:
            BadInput: that cannot be determined.
        """
        return self.tell_kind()


class KindHandler(Protocol):
    """Support of a framework for models of one kind."""

    @property
    def templates(self) -> str:
        """The folder of its templates, below that of the target; empty if it scaffolds none of this kind."""

    def plan(self, subject: Subject, request: Request) -> IntegrationPlan:
        """Return the files and edits of an integration.

        Raises:
            BadInput: the request cannot be met; nothing was written.
        """

    def candidate(self, path: Path) -> Candidate:
        """Return how to build both sides of a comparison for the integration in the directory `path`.

        Raises:
            BadInput: nothing to compare it with; why.
        """


@runtime_checkable
class HasVariants(Protocol):
    """A handler that can integrate models of one kind in more than one way."""

    @property
    def variants(self) -> Sequence[str]:
        """Names of the variants, which a request can use instead of a kind; the default one first."""


@runtime_checkable
class ReadsSome(Protocol):
    """A handler that takes models of some of the libraries alone that its target reads."""

    @property
    def reads(self) -> Sequence[str]:
        """These libraries, as `Subject.library` names them."""


@runtime_checkable
class WritesTraining(Protocol):
    """A handler that writes a training file with the kernels that a `Request` names."""

    @property
    def training_file(self) -> str:
        """The name of its template."""


@runtime_checkable
class NamesClass(Protocol):
    """A handler that names the model's class as a `Request` states."""

    @property
    def names_class(self) -> bool:
        """Return whether it does."""


@runtime_checkable
class ReportsSites(Protocol):
    """A handler that can tell what it would decide about upstream's code where it refuses a plan."""

    def sites(self, subject: Subject) -> tuple[Decision, ...]:
        """Return the decisions about upstream's code alone, those that a plan would have."""


@runtime_checkable
class ConfirmsByRunning(Protocol):
    """A handler whose plans run upstream's code to confirm decisions; see `IntegrationPlan.confirm`."""

    def prepare(self) -> None:
        """Begin to import, in another process, what `confirm` runs; do not wait for it."""


class Target(Protocol):
    """A framework that models are integrated into."""

    @property
    def name(self) -> str:
        """Name as typed after --target."""

    @property
    def reads(self) -> Sequence[str]:
        """The libraries whose models it takes, as `Subject.library` names them."""

    @property
    def kinds(self) -> Mapping[Kind, KindHandler]:
        """The kinds that it knows, with what it does with each."""

    @property
    def rules(self) -> str:
        """The package of its rules."""

    @property
    def requirements(self) -> Sequence[Requirement]:
        """Requirements to install, each with its command and reason."""

    def at(self, path: Path) -> Integration | None:
        """Return the integration whose own directory `path` is; None if it is none. Looks at nothing below.

        Every target is asked about every path: broken files in it may be those of others.
        """

    def find(self, path: Path) -> Sequence[Integration]:
        """Return the integrations at or below a path: of a model's own directory, of a checkout's root.

        Raises:
            BadInput: there is none; what is missing.
        """


@runtime_checkable
class ReportsSupport(Protocol):
    """A target that can say which models it has itself."""

    def has(self, subject: Subject) -> Sequence[Decision]:
        """Return what the framework has of a model, each with its place; empty if nothing."""


@runtime_checkable
class MakesConverters(Protocol):
    """A target that converts checkpoints while it loads them."""

    def converter(self, name: str, path: str, verdict: LayoutVerdict) -> NewFile | str:
        """Return the module that brings a checkpoint of this layout into its models, or in one line why none is needed.

        Its template is named from the folder of all of the target's templates.

        Raises:
            BadInput: the layout cannot be brought there.
        """


@runtime_checkable
class MakesExports(Protocol):
    """A target that writes the export of a trained model."""

    def exporter(self, path: str, integration: Integration) -> NewFile:
        """Return the module that exports a checkpoint of the framework's trainer, and casts nothing that upstream does
        not.

        Its template is named from the folder of all of the target's templates.

        Raises:
            BadInput: the integration trains no such model.
        """


@runtime_checkable
class SaysHowItLoads(Protocol):
    """A target whose loader can be asked what it makes of a checkpoint."""

    @property
    def consumer(self) -> Consumer:
        """Judge of a checkpoint as this framework would load it."""


def package_of(target: Target) -> str:
    """Return the folder name of a target: its name, as Python can import it."""
    return target.name.replace("-", "_")


def scaffolded(target: Target) -> list[Kind]:
    """Return the kinds that a target has templates for."""
    return [kind for kind, handler in target.kinds.items() if handler.templates]


def kind_taken(target: Target, kinds: Sequence[Kind]) -> Kind | None:
    """Return the first of a subject's kinds that a target scaffolds; None if it scaffolds none."""
    return next((kind for kind in kinds if kind in scaffolded(target)), None)


def variants_of(target: Target, kind: Kind) -> Sequence[str]:
    """Return the ways in which a target integrates models of a kind; none if there is only one."""
    handler = target.kinds[kind]
    return handler.variants if isinstance(handler, HasVariants) else ()


def reads_of(target: Target, kind: Kind) -> Sequence[str]:
    """Return the libraries whose models of a kind a target takes."""
    handler = target.kinds[kind]
    return handler.reads if isinstance(handler, ReadsSome) else target.reads


def handler_of(target: Target, kind: Kind) -> KindHandler:
    """Return a target's handler of a kind.

    Raises:
        BadInput: it does not know that kind.
    """
    if kind not in target.kinds:
        known = ", ".join(target.kinds)
        raise BadInput(f"{target.name} takes no model of kind '{kind}'", f"it takes {known}")
    return target.kinds[kind]
