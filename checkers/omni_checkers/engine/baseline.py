"""A baseline: findings that are known and are not reported again, until they are mended.

A finding is known by its rule, its file, and the text of its line: it stays known when lines above it come or go.
"""

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from omni_checkers.engine.rule import Finding
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
        """Reads the file.

        Raises:
            BadInput: it is missing or no baseline.
        """
        try:
            data = json.loads(self.file.read_text(encoding="utf-8"))
            entries = data["findings"] if data["schema"] == _SCHEMA else None
            self.known = Counter((entry["rule"], entry["path"], entry["text"]) for entry in entries or ())
        except (OSError, UnicodeDecodeError, json.JSONDecodeError, KeyError, TypeError) as error:
            hint = "write one with --write-baseline"
            raise BadInput(f"{self.file} is no baseline: {type(error).__name__}: {error}", hint) from error
        if entries is None:
            raise BadInput(f"{self.file} is no baseline of this version", "write a new one with --write-baseline")
        return self

    def write(self, findings: Iterable[Finding]) -> int:
        """Makes these findings the known ones; returns how many there are."""
        entries = [
            dict(zip(("rule", "path", "text"), self._key(f), strict=True)) | {"message": f.message} for f in findings
        ]
        write_atomic(self.file, json.dumps({"schema": _SCHEMA, "findings": entries}, indent=2) + "\n")
        return len(entries)

    def split(self, findings: Iterable[Finding]) -> tuple[list[Finding], int, list[dict[str, Any]]]:
        """(findings that are not known, how many are, entries that fit none)."""
        left = Counter(self.known)
        new = []
        for finding in findings:
            key = self._key(finding)
            if left[key]:
                left[key] -= 1
            else:
                new.append(finding)
        stale = [dict(zip(("rule", "path", "text"), key, strict=True)) for key in left.elements()]
        return new, self.known.total() - left.total(), stale

    def _key(self, finding: Finding) -> Key:
        path = finding.path.resolve()
        relative = path.relative_to(self.root).as_posix() if path.is_relative_to(self.root) else path.as_posix()
        return finding.rule, relative, _line(path, finding.line)


def _line(path: Path, number: int) -> str:
    """The text of a line, without what surrounds it."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return ""
    return lines[number - 1].strip() if 0 < number <= len(lines) else ""
