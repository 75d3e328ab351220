"""The report of a run, and its JSON form."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from omni_checkers.engine.registry import find_definition
from omni_checkers.engine.rule import Finding, Result, Rule, Severity
from omni_kit.diagnostics.definition import Definition
from omni_kit.diagnostics.finding import shown
from omni_kit.diagnostics.settings import Settings


@dataclass
class Report:
    """The findings of a run, with counts and suppressions.

    Attributes:
        results: one for every rule and model; a rule that was not applicable says why.
        models: the model directories that were looked at.
        files: how many files there are in them.
        suppressed: how many findings a comment, or the settings of the project, silenced.
        matched: how many findings the baseline knew.
        stale: entries of the baseline that fit no finding any more.
        notes: what else a person should know.
        settings: how it was checked, and which file says so.
    """

    findings: list[Finding] = field(default_factory=list)
    results: list[Result] = field(default_factory=list)
    models: list[Path] = field(default_factory=list)
    files: int = 0
    rules: list[type[Rule]] = field(default_factory=list)
    suppressed: int = 0
    matched: int = 0
    stale: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    strict: bool = False
    settings: Settings = field(default_factory=Settings)

    def count(self, severity: Severity) -> int:
        """Return the number of findings of this severity."""
        return sum(finding.severity is severity for finding in self.findings)

    @property
    def ok(self) -> bool:
        """No error; in a strict run, no warning either."""
        return not (self.count(Severity.error) or (self.strict and self.count(Severity.warning)))

    def definitions(self) -> list[Definition]:
        """Every ID that a finding can have."""
        return [one for rule in self.rules for one in rule.reported()]

    def as_json(self, base: Path | None = None) -> dict[str, Any]:
        """Return the command's fields of the contract; paths are relative to `base` where they are below it."""
        return {
            "findings": [finding_json(finding, base) for finding in self.findings],
            "checked": {"models": len(self.models), "files": self.files, "rules": len(self.rules)},
            "suppressed": self.suppressed,
            "baseline": {"matched": self.matched, "stale": self.stale},
            "settings": self.settings.as_json(),
            "results": [
                {"rule": r.rule, "model": shown(r.model, base), "status": r.status, "reason": r.reason}
                for r in self.results
            ],
        }


def finding_json(finding: Finding, base: Path | None = None) -> dict[str, Any]:
    """Return one entry of `findings`."""
    rule = find_definition(finding.rule)
    made = finding.generated
    generated = {"generated": {"path": shown(made[0], base), "line": made[1]}} if made is not None else {}
    family = {"family": rule.family} if rule.family else {}
    return generated | {
        "rule": finding.rule,
        **family,
        "severity": (finding.severity or rule.severity).value,
        "path": shown(finding.path, base),
        "line": finding.line,
        "column": finding.column,
        "message": finding.message,
        "why": rule.documentation.why,
        "fixable": bool(finding.edits),
        "obligation": rule.obligations[0] if rule.obligations else None,
    }


def grouped(findings: Sequence[Finding]) -> Iterator[tuple[Path, list[Finding]]]:
    """Yield findings by file, in order."""
    by_file: dict[Path, list[Finding]] = {}
    for finding in findings:
        by_file.setdefault(finding.path, []).append(finding)
    yield from by_file.items()
