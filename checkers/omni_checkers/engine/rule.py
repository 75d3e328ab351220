"""Rule and Finding: what a checker is, and what it says."""

import ast
import inspect
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from omni_kit.upstream.kinds import Kind

Example = Mapping[str, str]
"""Files of an example: path inside the model directory -> text."""


class Severity(StrEnum):
    """error: it breaks or corrupts. warning: it will, in a case that has not come yet. info: a convention."""

    error = "error"
    warning = "warning"
    info = "info"


class NotApplicable(Exception):
    """Raised by a fact or a rule: there is nothing here that the rule could judge; the message says why."""


@dataclass(frozen=True)
class Edit:
    """A replacement of a part of a file. Lines count from 1, columns from 0 and in UTF-8 bytes, as ast counts them."""

    path: Path
    start: tuple[int, int]
    end: tuple[int, int]
    text: str

    @classmethod
    def of(cls, path: Path, node: ast.expr | ast.stmt | ast.alias, text: str) -> "Edit":
        """Replaces a node."""
        return cls(path, (node.lineno, node.col_offset), _end(node), text)

    @classmethod
    def around(cls, path: Path, node: ast.expr, before: str, after: str) -> tuple["Edit", "Edit"]:
        """Puts something before and after a node."""
        start, end = (node.lineno, node.col_offset), _end(node)
        return cls(path, start, start, before), cls(path, end, end, after)


def _end(node: ast.expr | ast.stmt | ast.alias) -> tuple[int, int]:
    return node.end_lineno or node.lineno, node.end_col_offset or node.col_offset


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong.

    Attributes:
        path: the file, absolute.
        line: from 1.
        column: from 1.
        severity: set by the rule only where one finding differs from the others; by the engine always.
        edits: what mends it safely; empty where a person has to decide.
        generated: the generated file and its line, where `path` and `line` are those of the code that it was made from;
            set by the engine.
    """

    message: str
    path: Path
    line: int = 1
    column: int = 1
    rule: str = ""
    severity: Severity | None = None
    edits: tuple[Edit, ...] = ()
    generated: tuple[Path, int] | None = None


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
    """What went wrong in practice, by name; see docs/coverage.md."""
    requires: ClassVar[tuple[str, ...]] = ()
    """Importable packages that it needs, besides those of the base install."""
    fixable: ClassVar[bool] = False
    since: ClassVar[str] = "0.1"
    status: ClassVar[str] = "stable"
    staleness: ClassVar[bool] = False
    """It says that a file is not what it is generated from. An example that shows a part of a generated file, and not
    what it is generated from, is stale by definition."""
    example_of: ClassVar[str] = ""
    """The model whose directory the examples are laid over; files that they do not name stay as they are, and so does
    the rest of a generated file. Empty for the one that the rules of the target share: its `EXAMPLE`."""
    BAD: ClassVar[tuple[Example, ...]] = ()
    GOOD: ClassVar[tuple[Example, ...]] = ()

    check: ClassVar[Any]
    """What judges one model: a method that takes facts by the names of its parameters and gives its findings, none for
    a model that complies. It raises NotApplicable where there is nothing to judge. A fact that a model may lack has a
    default."""

    @classmethod
    def facts(cls) -> tuple[str, ...]:
        """The names of the facts that `check` asks for."""
        return tuple(inspect.signature(cls.check).parameters)[1:]

    @classmethod
    def documentation(cls) -> "Documentation":
        """The docstring of the rule in its parts; a part that is not there is empty."""
        return _read_documentation(inspect.getdoc(cls) or "")

    @classmethod
    def as_json(cls) -> dict[str, Any]:
        """One entry of `rules`."""
        return {
            "id": cls.id,
            "name": cls.name,
            "severity": cls.severity.value,
            "target": cls.target,
            "kinds": sorted(map(str, cls.kinds)),
            "level": cls.level,
            "summary": cls.documentation().summary,
            "obligations": list(cls.obligations),
            "fixable": cls.fixable,
            "since": cls.since,
            "status": cls.status,
        }


@dataclass(frozen=True)
class Documentation:
    """A rule's docstring in its parts."""

    summary: str
    details: str
    why: str
    fine_when: str


@cache
def _read_documentation(text: str) -> Documentation:
    summary, _, rest = text.partition("\n\n")
    parts = re.split(r"^(Why|Fine when):\s*", rest, flags=re.MULTILINE)
    named = dict(zip(parts[1::2], parts[2::2], strict=True))
    return Documentation(
        summary=" ".join(summary.split()),
        details=parts[0].strip(),
        why=" ".join(named.get("Why", "").split()),
        fine_when=" ".join(named.get("Fine when", "").split()),
    )


@dataclass(frozen=True)
class Result:
    """What one rule made of one model.

    Attributes:
        status: "pass", "fail" or "not-applicable".
        reason: why it is not applicable.
    """

    rule: str
    model: Path
    status: str
    reason: str = ""


LEVELS = ("static", "import", "toy")
"""What a rule needs: the text alone; the package imported; a toy checkpoint loaded."""

Findings = Iterable[Finding]
