"""A baseline: findings that are known and are not reported again, until they are fixed.

A finding is known by its rule, its file, and the text of its line: it stays known when lines above it come or go.
"""

import json
import tokenize
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from omni_kit.diagnostics.definition import family_of
from omni_kit.diagnostics.finding import Finding
from omni_kit.documents import read_json
from omni_kit.errors import BadInput
from omni_kit.files import write_atomic

_SCHEMA = "omni-kit/baseline/1"
Key = tuple[str, str, str]


class Baseline:
    """The known findings of one file.

    Args:
        file: the baseline; paths in it are relative to its directory.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        self.root = file.resolve().parent
        self.known: Counter[Key] = Counter()

    def read(self) -> "Baseline":
        """Read the file.

        Raises:
            BadInput: it is missing or no baseline.
        """
        try:
            self.known = Counter(map(_key_of, _entries(self.file)))
        except (OSError, ValueError, RecursionError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            raise BadInput(f"{self.file} is not a baseline: {why}", "write one with --write-baseline") from error
        return self

    def check_replaceable(self) -> None:
        """Make sure that nothing else is lost by writing.

        Raises:
            BadInput: the file is there and is not a baseline, or leads to another one by a link.
        """
        hint = "name a new file, or a baseline written before"
        if self.file.is_symlink() or (self.file.exists() and not self.file.is_file()):
            raise BadInput(f"{self.file} is not a regular file and was not overwritten", hint)
        try:
            if self.file.exists():
                _entries(self.file)
        except (OSError, ValueError, RecursionError) as error:
            raise BadInput(f"{self.file} is not a baseline and was not overwritten", hint) from error

    def written(self, findings: Iterable[Finding]) -> str:
        """Write these findings, and return the line that says so."""
        count = self.write(findings)
        return f"wrote {count} {'finding' if count == 1 else 'findings'} to {self.file}"

    def write(self, findings: Iterable[Finding]) -> int:
        """Make these findings the known ones; return how many there are."""
        entries = [
            dict(zip(("rule", "path", "text"), self._key(f), strict=True)) | {"message": f.message} for f in findings
        ]
        write_atomic(self.file, json.dumps({"schema": _SCHEMA, "findings": entries}, indent=2) + "\n")
        return len(entries)

    def split(self, findings: Iterable[Finding]) -> tuple[list[Finding], int, list[dict[str, Any]]]:
        """(findings that are not known, how many are, entries that fit none).

        An entry with the ID of a family knows the findings of all its detectors.
        """
        before = self.known.total()
        new = [finding for finding in findings if not self.take(finding)]
        stale = [dict(zip(("rule", "path", "text"), key, strict=True)) for key in self.known.elements()]
        return new, before - self.known.total(), stale

    def take(self, finding: Finding) -> bool:
        """Return whether an entry knows a finding; the entry is used up then."""
        rule, path, text = self._key(finding)
        for name in (rule, family_of(rule)):
            if self.known[name, path, text]:
                self.known[name, path, text] -= 1
                return True
        return False

    def _key(self, finding: Finding) -> Key:
        path = finding.path.resolve()
        relative = path.relative_to(self.root).as_posix() if path.is_relative_to(self.root) else path.as_posix()
        return finding.rule, relative, _line(path, finding.line)


def _entries(file: Path) -> list[Any]:
    """Return the entries of a baseline; ValueError says what is wrong with another file."""
    data = read_json(file.read_text(encoding="utf-8"))
    if not isinstance(data, dict) or data.get("schema") != _SCHEMA:
        raise ValueError(f"its schema is not {_SCHEMA}")
    entries = data.get("findings")
    if not isinstance(entries, list):
        raise ValueError("it has no findings list")
    return entries


def _key_of(entry: Any) -> Key:
    key = tuple(entry.get(name) for name in ("rule", "path", "text")) if isinstance(entry, dict) else ()
    if len(key) != 3 or not all(isinstance(part, str) for part in key):
        raise ValueError("an entry has no rule, path and text")
    return str(key[0]), str(key[1]), str(key[2])


def _line(path: Path, number: int) -> str:
    """Return the text of a line, without what surrounds it; empty for a finding about a whole file."""
    if number < 1:
        return ""
    try:
        with tokenize.open(path) as file:
            lines = file.read().splitlines()
    except (OSError, LookupError, UnicodeError, SyntaxError):
        return ""
    return lines[number - 1].strip() if 0 < number <= len(lines) else ""
