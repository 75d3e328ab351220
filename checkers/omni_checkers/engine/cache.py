"""Verdicts of earlier runs, valid as long as nothing that they depend on has changed."""

import hashlib
import json
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import omni_kit
from omni_checkers.engine.judge import STATUSES, RuleVerdict
from omni_checkers.engine.registry import all_rules, find_definition
from omni_checkers.engine.rule import Edit, Finding, Severity
from omni_kit.authenticated_cache import read_keyed, write_keyed
from omni_kit.errors import BadInput, MissingRequirement
from omni_kit.pysource.library import find_library

_T = TypeVar("_T", str, int)


class Cache:
    """Verdicts by model: rule id -> verdict, together with a digest of everything that they depend on.

    Args:
        directory: one file a model lies here.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def read(self, model: Path, digest: str) -> dict[str, RuleVerdict]:
        """Return the stored results of a model; empty if a file changed or nothing is stored."""
        try:
            data = json.loads(read_keyed(self._file(model)))
            if data["digest"] != digest:
                return {}
            return {rule: _verdict(item) for rule, item in data["verdicts"].items()}
        except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError, BadInput):
            return {}  # a cache that cannot be read is no cache

    def write(self, model: Path, digest: str, verdicts: dict[str, RuleVerdict]) -> None:
        """Remembers verdicts; a cache that cannot be written to is no error."""
        data = {"model": str(model), "digest": digest, "verdicts": {k: _as_json(v) for k, v in verdicts.items()}}
        write_keyed(self._file(model), json.dumps(data))

    def _file(self, model: Path) -> Path:
        return self.directory / "check" / f"{hashlib.sha256(str(model).encode()).hexdigest()[:24]}.json"


def digest(inputs: Iterable[Path], surroundings: Iterable[Path] = (), libraries: Iterable[str] = ()) -> str:
    """Return a digest of files by content, of packages and upstream's libraries by file times, and of the program
    itself.
    """
    found = hashlib.sha256(_program().encode())
    for name in libraries:
        found.update(_library(name).encode())
    for package in surroundings:
        found.update(_stamps(package).encode())
    for path in inputs:
        try:
            found.update(f"{path}\0".encode() + (path.read_bytes() if path.is_file() else b"missing"))
        except OSError:
            found.update(f"{path} missing".encode())
    return found.hexdigest()


def _library(name: str) -> str:
    """Return the version of an installed library and the time of its installation."""
    try:
        library = find_library(name)
    except MissingRequirement:
        return f"{name} missing"
    return f"{library.root}{library.version}{(library.root / '__init__.py').stat().st_mtime_ns}"


@cache
def _stamps(package: Path) -> str:
    return "\n".join(f"{path}:{path.stat().st_mtime_ns}" for path in sorted(package.rglob("*.py")) if path.is_file())


@cache
def _program() -> str:
    """Return the rules and the code below them, by file times: a rule that was changed judges again."""
    roots = [Path(__file__).parents[1], Path(str(omni_kit.__file__)).parent]
    files = {path for root in roots for path in root.rglob("*.py")}
    for rule in all_rules():
        origin = getattr(sys.modules.get(rule.__module__), "__file__", None)
        if origin:
            files.add(Path(origin))
    stamps = (f"{path}:{path.stat().st_mtime_ns}:{path.stat().st_size}" for path in sorted(files))
    return f"{sys.version_info}" + "\n".join(stamps)


def _as_json(verdict: RuleVerdict) -> dict[str, Any]:
    return {
        "status": verdict.status,
        "reason": verdict.reason,
        "suppressed": verdict.suppressed,
        "findings": [
            {
                "message": f.message,
                "path": str(f.path),
                "line": f.line,
                "column": f.column,
                "rule": f.rule,
                "severity": f.severity,
                "generated": [str(f.generated[0]), f.generated[1]] if f.generated else None,
                "edits": [[str(e.path), *e.start, *e.end, e.text] for e in f.edits],
            }
            for f in verdict.findings
        ],
    }


def _verdict(item: dict[str, Any]) -> RuleVerdict:
    """Return the verdict that was kept; TypeError, ValueError or LookupError where the entry has another shape."""
    if item["status"] not in STATUSES:
        raise ValueError("no status")
    findings = [
        Finding(
            message=_kept(f["message"], str),
            path=Path(f["path"]),
            line=_kept(f["line"], int),
            column=_kept(f["column"], int),
            rule=find_definition(f["rule"]).id,
            severity=Severity(f["severity"]),
            generated=(Path(f["generated"][0]), _kept(f["generated"][1], int)) if f["generated"] else None,
            edits=tuple(Edit(Path(e[0]), (e[1], e[2]), (e[3], e[4]), _kept(e[5], str)) for e in f["edits"]),
        )
        for f in item["findings"]
    ]
    return RuleVerdict(item["status"], _kept(item["reason"], str), findings, _kept(item["suppressed"], int))


def _kept(value: Any, kind: type[_T]) -> _T:
    if type(value) is not kind:
        raise TypeError(f"{value!r} is not of type {kind.__name__}")
    return value
