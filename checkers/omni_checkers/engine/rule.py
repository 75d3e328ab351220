"""Rule: the base class of checks, and the attributes that each declares."""

import inspect
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from omni_kit.diagnostics.definition import Definition, Documentation, Example, documentation
from omni_kit.diagnostics.finding import Edit, Finding, Severity
from omni_kit.upstream.kinds import Kind

__all__ = [
    "LEVELS",
    "Detector",
    "Documentation",
    "Edit",
    "Example",
    "Finding",
    "Findings",
    "NotApplicable",
    "Result",
    "Rule",
    "Severity",
]


class NotApplicable(Exception):
    """Raised by a fact or a rule: there is nothing here that the rule could judge; the message says why."""


@dataclass(frozen=True)
class Detector:
    """One kind of mistake of a rule that finds several: a family. Its ID is the family's, a dot and its number.

    A number is never given to another detector. `name` is what a Finding of it has as `detector`.
    """

    number: int
    name: str
    summary: str
    details: str = ""


class Rule:
    """A checker.

    A subclass sets the class attributes and writes `check`, whose parameters are facts, injected by name. Its docstring
    is its documentation: the first line says what it asks for, `Why:` what a user sees when it is not so, `Fine when:`
    when not to comply.
    """

    id: ClassVar[str]
    name: ClassVar[str]
    severity: ClassVar[Severity] = Severity.error
    target: ClassVar[str]
    kinds: ClassVar[frozenset[Kind]] = frozenset()
    """Kinds of model that it speaks of; empty for all."""
    level: ClassVar[str] = "static"
    obligations: ClassVar[tuple[str, ...]] = ()
    failure_modes: ClassVar[tuple[str, ...]] = ()
    """Names of failures in practice; see docs/coverage.md."""
    requires: ClassVar[tuple[str, ...]] = ()
    """Importable packages that it needs, other than those of the base install."""
    fixable: ClassVar[bool] = False
    since: ClassVar[str] = "0.1"
    status: ClassVar[str] = "stable"
    staleness: ClassVar[bool] = False
    """True if its findings are stale files. An example that shows part of a generated file without its source is stale
    by definition."""
    example_of: ClassVar[str] = ""
    """The model whose directory the examples are laid over; files that they do not name stay as they are, and so does
    the rest of a generated file. Empty for the one that the rules of the target share: its `EXAMPLE`."""
    detectors: ClassVar[tuple[Detector, ...]] = ()
    """Empty for a rule that finds one kind of mistake. Each finding of a family names its detector."""
    BAD: ClassVar[tuple[Example, ...]] = ()
    GOOD: ClassVar[tuple[Example, ...]] = ()

    check: ClassVar[Any]
    """Method that judges one model: it takes facts by the names of its parameters and returns its findings, none for a
    model that complies. It raises NotApplicable if there is nothing to judge. A fact that a model may lack has a
    default."""

    @classmethod
    def facts(cls) -> tuple[str, ...]:
        """Return the names of the facts that `check` asks for."""
        return tuple(inspect.signature(cls.check).parameters)[1:]

    @classmethod
    def documentation(cls) -> Documentation:
        """Return the rule's docstring in its parts; missing parts are empty."""
        return documentation(inspect.getdoc(cls) or "")

    @classmethod
    def definition(cls) -> Definition:
        """Return the definition of the rule's own ID; for a family, the part that its detectors share."""
        return cls.definitions()[0]

    @classmethod
    def definitions(cls) -> tuple[Definition, ...]:
        """Return the rule's definition, then one of each of its detectors."""
        if cls not in _DEFINITIONS:
            own = _definition(cls)
            _DEFINITIONS[cls] = own, *(_detector(cls, own, one) for one in cls.detectors)
        return _DEFINITIONS[cls]

    @classmethod
    def reported(cls) -> tuple[Definition, ...]:
        """The definitions that its findings can have: its detectors', or its own without any."""
        return cls.definitions()[1:] or cls.definitions()

    @classmethod
    def id_of(cls, detector: str) -> str:
        """Return the ID of a finding: that of its detector, or the rule's own where it has none.

        Raises:
            ValueError: the rule has no such detector, or has several and the finding names none.
        """
        if not cls.detectors and not detector:
            return cls.id
        for one in cls.detectors:
            if one.name == detector:
                return f"{cls.id}.{one.number}"
        raise ValueError(f"{cls.id} has no detector '{detector}'")


_DEFINITIONS: dict[type[Rule], tuple[Definition, ...]] = {}


def _definition(rule: type[Rule]) -> Definition:
    return Definition(
        id=rule.id,
        name=rule.name,
        severity=rule.severity,
        target=rule.target,
        documentation=rule.documentation(),
        level=rule.level,
        kinds=tuple(sorted(map(str, rule.kinds))),
        obligations=rule.obligations,
        fixable=rule.fixable,
        since=rule.since,
        status=rule.status,
        bad=rule.BAD,
        good=rule.GOOD,
    )


def _detector(rule: type[Rule], own: Definition, one: Detector) -> Definition:
    common = own.documentation
    said = Documentation(one.summary, one.details, common.why, common.fine_when)
    return replace(own, id=rule.id_of(one.name), name=one.name, documentation=said, family=rule.id, bad=(), good=())


@dataclass(frozen=True)
class Result:
    """The findings of one rule on one model.

    Attributes:
        status: "pass", "fail" or "not-applicable".
        reason: why it is not applicable.
    """

    rule: str
    model: Path
    status: str
    reason: str = ""


LEVELS = ("static", "import", "toy")
"""Requirements of a rule: the text alone; the package imported; a toy checkpoint loaded."""

Findings = Iterable[Finding]
