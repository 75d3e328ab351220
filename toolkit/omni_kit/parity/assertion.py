"""Parity as one line of a test."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from omni_kit.parity.report.report import ParityReport
from omni_kit.parity.run import run_parity
from omni_kit.plurals import counted


def assert_parity(path: Path, levels: Sequence[str] | None = None, **options: Any) -> ParityReport:
    """Run parity and fails unless every level that was asked for passed.

    Args:
        path, levels, options: as `run_parity`.

    Raises:
        AssertionError: with each level that did not pass, the first module to blame, and the command to run it again.
        BadInput, MissingRequirement: as `run_parity`.
    """
    __tracebackhide__ = True  # pytest shows the line of the test, and what it says
    report = run_parity(path, levels, **options)
    if not report.ok:
        raise AssertionError(explain(report))
    return report


def explain(report: ParityReport) -> str:
    """Return the problems of a report in a few lines that a person or an agent can act on."""
    lines = [f"{report.model_type or report.path} is not at parity with upstream"]
    lines += [f"  {level.level}: {level.status}: {level.reason}" for level in report.levels if level.status != "pass"]
    if (found := report.first_divergence) is not None:
        figures = f"adds {found.added:.1e} to {found.what} (inherited {found.inherited:.1e})"
        lines += [
            f"  first divergence: {found.module} {figures}",
            f"    candidate {found.candidate_source}",
            f"    upstream  {found.reference_source}",
        ]
    if report.prove and report.prove.missed:
        lines.append(
            f"  {counted(report.prove.missed, 'injected fault')} not detected, among them {report.prove.missed[0]}"
        )
    if report.again:
        lines.append(f"  rerun: {report.again} --work-dir parity-evidence")
    return "\n".join(lines)
