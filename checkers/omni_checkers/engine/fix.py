"""Applies the edits that findings bring along."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from omni_checkers.engine.rule import Edit, Finding
from omni_kit.files import write_atomic
from omni_kit.pysource.source import read_source


def apply_fixes(findings: Iterable[Finding]) -> list[Finding]:
    """Write the edits of findings; return the findings that were fixed.

    A finding whose edits overlap those of an earlier one is left for the next run.
    """
    taken: dict[Path, list[Edit]] = {}
    mended = []
    for finding in findings:
        if finding.edits and not any(_overlaps(edit, taken.get(edit.path, [])) for edit in finding.edits):
            mended.append(finding)
            for edit in finding.edits:
                taken.setdefault(edit.path, []).append(edit)
    for path, edits in taken.items():
        write_atomic(path, edited(path.read_text(encoding="utf-8"), edits))
    read_source.cache_clear()  # what was read before is not what is there now
    return mended


def edited(text: str, edits: Sequence[Edit]) -> str:
    """Return a text after edits that do not overlap."""
    data = text.encode()
    starts = [0]
    for line in data.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for edit in sorted(set(edits), key=lambda edit: edit.start, reverse=True):
        start, end = (starts[line - 1] + column for line, column in (edit.start, edit.end))
        data = data[:start] + edit.text.encode() + data[end:]
    return data.decode()


def _overlaps(edit: Edit, others: Sequence[Edit]) -> bool:
    return any(edit != other and edit.start < other.end and other.start < edit.end for other in others)
