"""Findings: the fault, its place and its fix."""

import ast
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path


class Severity(StrEnum):
    """error: it breaks or corrupts. warning: it will, in a case that has not come yet. info: a convention."""

    error = "error"
    warning = "warning"
    info = "info"


@dataclass(frozen=True)
class Edit:
    """A replacement of a part of a file. Lines count from 1, columns from 0 and in UTF-8 bytes, as ast counts them."""

    path: Path
    start: tuple[int, int]
    end: tuple[int, int]
    text: str

    @classmethod
    def of(cls, path: Path, node: ast.expr | ast.stmt | ast.alias, text: str) -> "Edit":
        """Replace a node."""
        return cls(path, (node.lineno, node.col_offset), _end(node), text)

    @classmethod
    def around(cls, path: Path, node: ast.expr, before: str, after: str) -> tuple["Edit", "Edit"]:
        """Put something before and after a node."""
        start, end = (node.lineno, node.col_offset), _end(node)
        return cls(path, start, start, before), cls(path, end, end, after)


def _end(node: ast.expr | ast.stmt | ast.alias) -> tuple[int, int]:
    return node.end_lineno or node.lineno, node.end_col_offset or node.col_offset


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong.

    Attributes:
        message: what is wrong, in one line.
        path: the file, absolute.
        line: from 1.
        column: from 1.
        rule: the ID of the rule, or of the detector of a family of rules; set by the engine.
        severity: set by the rule only where one finding differs from the others; by the engine always.
        edits: the safe fix; empty when a person has to decide.
        generated: the generated file and its line, when `path` and `line` are those of the code that it was made from;
            set by the engine.
        detector: the name of the detector that found it; only rules with several detectors set it.
    """

    message: str
    path: Path
    line: int = 1
    column: int = 1
    rule: str = ""
    severity: Severity | None = None
    edits: tuple[Edit, ...] = ()
    generated: tuple[Path, int] | None = None
    detector: str = field(default="", compare=False)  # `rule` has it as a number

    def __post_init__(self) -> None:
        """Keep the message to one line: what it quotes must not begin a line of a report."""
        if len(lines := self.message.splitlines()) > 1:
            object.__setattr__(self, "message", " ".join(filter(None, map(str.strip, lines))))


def shown(path: Path, base: Path | None = None) -> str:
    """Return a path as people type it: relative to `base`, or to the working directory, when it is below."""
    base = base or Path.cwd()
    return path.relative_to(base).as_posix() if path.is_relative_to(base) else path.as_posix()
