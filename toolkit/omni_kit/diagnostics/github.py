"""A report as GitHub workflow commands: annotations on the lines of a pull request."""

from collections.abc import Iterator
from pathlib import Path

from omni_kit.diagnostics.finding import Severity, shown
from omni_kit.diagnostics.reported import Reported

_COMMANDS = {Severity.error: "error", Severity.warning: "warning", Severity.info: "notice"}


def as_github(report: Reported, base: Path | None = None) -> Iterator[str]:
    """Yield one workflow command a finding."""
    for finding in report.findings:
        properties = {
            "file": shown(finding.path, base),
            "line": str(max(1, finding.line)),
            "col": str(finding.column),
            "title": finding.rule,
        }
        shown_properties = ",".join(f"{key}={_property(value)}" for key, value in properties.items())
        command = _COMMANDS[finding.severity or Severity.error]
        made = f" (in {shown(finding.generated[0], base)}:{finding.generated[1]})" if finding.generated else ""
        yield f"::{command} {shown_properties}::{_data(finding.message + made)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
