"""patchgen's diagnostics of a config: one line each, with a stable code."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from omni_kit.diagnostics.finding import Severity
from omni_kit.patchgen.codes import DEFINITIONS
from omni_kit.patchgen.spec import Origin

__all__ = ["Diagnostic", "Severity", "error", "has_errors", "info", "strictly", "warning"]


@dataclass(frozen=True)
class Diagnostic:
    """`message` says what is wrong and what to do; `path` and `line` are in the config, or empty when in no one line.

    `names` are the definitions that it speaks of, for tools. `file` is the whole path of the config, where known.
    """

    code: str
    severity: Severity
    message: str
    path: str = ""
    line: int = 0
    names: tuple[str, ...] = ()
    file: str = ""

    @property
    def id(self) -> str:
        """The ID of the code, such as PGN101."""
        return DEFINITIONS[self.code].id


def error(code: str, message: str, at: Origin | None = None, names: Iterable[str] = ()) -> Diagnostic:
    """Return a diagnostic that keeps the file from being written; `at` is the line of the config."""
    return _at(code, Severity.error, message, at, names)


def warning(code: str, message: str, at: Origin | None = None, names: Iterable[str] = ()) -> Diagnostic:
    """Return a diagnostic of something doubtful; `at` is the line of the config."""
    return _at(code, Severity.warning, message, at, names)


def info(code: str, message: str, at: Origin | None = None, names: Iterable[str] = ()) -> Diagnostic:
    """Return a diagnostic of something worth knowing; `at` is the line of the config."""
    return _at(code, Severity.info, message, at, names)


def strictly(found: Iterable[Diagnostic]) -> list[Diagnostic]:
    """Turn every warning into an error."""
    return [replace(d, severity=Severity.error) if d.severity is Severity.warning else d for d in found]


def has_errors(found: Iterable[Diagnostic]) -> bool:
    """Return whether one of them keeps the file from being written."""
    return any(d.severity is Severity.error for d in found)


def _at(code: str, severity: Severity, message: str, at: Origin | None, names: Iterable[str]) -> Diagnostic:
    assert code in DEFINITIONS, code
    path = Path(at.path).name if at else ""
    line, file = (at.line, at.path) if at else (0, "")
    return Diagnostic(code, severity, " ".join(message.split()), path, line, tuple(names), file)
