"""A report as SARIF 2.1.0, for code scanning."""

import hashlib
from pathlib import Path
from typing import Any

from omni_kit import __version__
from omni_kit.diagnostics.definition import Definition
from omni_kit.diagnostics.finding import Finding, Severity, shown
from omni_kit.diagnostics.reported import Reported

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_LEVELS = {Severity.error: "error", Severity.warning: "warning", Severity.info: "note"}


def as_sarif(report: Reported, base: Path | None = None) -> dict[str, Any]:
    """Return the report as one SARIF log; paths are relative to `base`, or the working directory, where they
    are below.
    """
    rules = report.definitions()
    numbers = {rule.id: number for number, rule in enumerate(rules)}
    driver = {
        "name": "omni-kit",
        "semanticVersion": __version__,
        "rules": [_rule(rule) for rule in rules],
    }
    return {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {"driver": driver},
                "columnKind": "unicodeCodePoints",
                "results": [_result(finding, numbers[finding.rule], base) for finding in report.findings],
                "invocations": [{"executionSuccessful": True}],
            }
        ],
    }


def _rule(rule: Definition) -> dict[str, Any]:
    said = rule.documentation
    text = "\n\n".join(part for part in (said.details, f"Why: {said.why}", f"Fine when: {said.fine_when}") if part)
    family = [rule.family] if rule.family else []
    return {
        "id": rule.id,
        "name": rule.name,
        "shortDescription": {"text": said.summary},
        "fullDescription": {"text": said.why},
        "help": {"text": text},
        "defaultConfiguration": {"level": _LEVELS[rule.severity]},
        "properties": {"tags": [rule.target, rule.level, *family, *rule.obligations]},
    }


def _result(finding: Finding, number: int, base: Path | None) -> dict[str, Any]:
    uri = shown(finding.path, base)
    place = _location(finding.path, finding.line, finding.column, base)
    made = {"relatedLocations": [_location(*finding.generated, 1, base)]} if finding.generated else {}
    stable = hashlib.sha256(f"{finding.rule}:{uri}:{finding.message}".encode()).hexdigest()[:32]
    return {
        "ruleId": finding.rule,
        "ruleIndex": number,
        "level": _LEVELS[finding.severity or Severity.error],
        "message": {"text": finding.message},
        "locations": [place],
        **made,
        "partialFingerprints": {"omniKit/v1": stable},
    }


def _location(path: Path, line: int, column: int, base: Path | None) -> dict[str, Any]:
    uri = shown(path, base)
    artifact = {"uri": uri if not uri.startswith("/") else path.as_uri()}
    region = {"startLine": max(1, line), "startColumn": max(1, column)}
    return {"physicalLocation": {"artifactLocation": artifact, "region": region}}
