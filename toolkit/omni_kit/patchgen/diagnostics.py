"""What patchgen has to say about a config: one line each, with a stable code."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from omni_kit.patchgen.spec import Origin

CODES = {
    "missing-target": "a patch, helper or exclude names what upstream does not define",
    "ambiguous-target": "the target is defined more than once, under conditions",
    "duplicate-target": "one target is patched twice; the last wins",
    "shadowed": "an override inside a class that is replaced, or a modified __init__ that is overridden",
    "excluded-target": "a target is patched and excluded",
    "overlapping-patches": "two patches change the same lines",
    "no-source": "the replacement is a lambda, no definition, or its text cannot be found",
    "bad-init": "a modify_init function that does not take or call the original",
    "injected": "a method that upstream does not have is added",
    "inject-exists": "inject=True on a method that upstream has",
    "guarded-target": "the target stands under an if or try",
    "async-mismatch": "a plain function for an async one, or the other way",
    "aliased-decorator": "a registration under another name than the config's method",
    "duplicate-decorator": "a decorator that upstream has and the patch gives again",
    "mutable-default": "a list, dict or set as a default argument",
    "no-change": "the patch is what upstream has",
    "dropped-parameter": "a parameter of upstream that the patch does not take",
    "required-parameter": "a parameter without default that callers do not pass",
    "parameter-order": "positions mean other parameters than upstream's",
    "base-signature": "an added method lacks parameters of the base class's",
    "undefined-name": "a name that nothing defines",
    "excluded-reference": "code that stays names an excluded definition",
    "dead-helper": "a definition that only excluded code used",
    "output-fields": "name_map turns an output class into one with other fields",
    "name-map-unused": "a name_map key that matches no identifier",
    "name-map-skipped": "identifiers that hold a name_map key where no word begins",
    "undocumented-parameter": "a parameter that @auto_docstring complains about",
    "missing-import": "an added import of what is not there",
    "config-import": "the config imports what is not there",
    "import-collision": "one name from two places",
    "nothing-dropped": "drop_import_names names what upstream does not import",
    "version-mismatch": "transformers_version does not fit the source",
    "version-unknown": "the source does not say its version",
    "bad-version": "transformers_version is no version or specifier",
    "invalid-python": "the result does not compile",
    "format-failed": "ruff refuses the result",
    "cannot-load": "the config fails when it is run",
    "unreadable": "the config cannot be read without running it",
    "no-source-module": "the source module is not installed or cannot be read",
    "foreign-file": "a file that no patch generator wrote stands in the output's place, or a link leads elsewhere",
    "same-output": "two configs write one file",
    "stale": "a committed file is not what its config generates",
    "not-generated": "a config's file is not there",
    "orphan": "a generated file that no config makes",
}


class Severity(StrEnum):
    """How bad it is: only an error keeps the file from being written."""

    error = "error"
    warning = "warning"
    info = "info"


@dataclass(frozen=True)
class Diagnostic:
    """`message` says what is wrong and what to do; `path` and `line` are in the config, or empty when in no one line.

    `names` are the definitions that it speaks of, for tools.
    """

    code: str
    severity: Severity
    message: str
    path: str = ""
    line: int = 0
    names: tuple[str, ...] = ()


def error(code: str, message: str, at: Origin | None = None, names: Iterable[str] = ()) -> Diagnostic:
    """A diagnostic that keeps the file from being written; `at` is the line of the config."""
    return _at(code, Severity.error, message, at, names)


def warning(code: str, message: str, at: Origin | None = None, names: Iterable[str] = ()) -> Diagnostic:
    """A diagnostic of something doubtful; `at` is the line of the config."""
    return _at(code, Severity.warning, message, at, names)


def info(code: str, message: str, at: Origin | None = None, names: Iterable[str] = ()) -> Diagnostic:
    """A diagnostic of something worth knowing; `at` is the line of the config."""
    return _at(code, Severity.info, message, at, names)


def strictly(found: Iterable[Diagnostic]) -> list[Diagnostic]:
    """The same with every warning an error."""
    return [replace(d, severity=Severity.error) if d.severity is Severity.warning else d for d in found]


def has_errors(found: Iterable[Diagnostic]) -> bool:
    """Whether one of them keeps the file from being written."""
    return any(d.severity is Severity.error for d in found)


def _at(code: str, severity: Severity, message: str, at: Origin | None, names: Iterable[str]) -> Diagnostic:
    assert code in CODES, code
    path = Path(at.path).name if at else ""
    return Diagnostic(code, severity, " ".join(message.split()), path, at.line if at else 0, tuple(names))
