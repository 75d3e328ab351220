"""Suppressions: `# omni-kit: ignore[VEO123] the reason`, on the line of a finding or alone on the line above."""

import io
import re
import tokenize
from dataclasses import dataclass
from pathlib import Path

from omni_kit.diagnostics.definition import names
from omni_kit.diagnostics.finding import Finding

_MARK = "omni-kit:"
_FORM = re.compile(r"#\s*omni-kit:\s*ignore(?:\[(?P<ids>[^\]]*)\])?(?P<reason>.*)$")


@dataclass
class Suppression:
    """One ignore comment: the IDs, and the lines that it covers."""

    path: Path
    line: int
    rules: tuple[str, ...]
    lines: range

    def covers(self, finding: Finding) -> bool:
        """Return whether it silences a finding: in its file, on one of its lines, of one of its rules or families."""
        here = finding.path == self.path and finding.line in self.lines
        return here and any(names(listed, finding.rule) for listed in self.rules)


def read_comment(text: str) -> tuple[tuple[str, ...], str] | None:
    """Return the IDs that an ignore comment lists, and its reason; either may be empty. None for another comment."""
    match = _FORM.search(text)
    if match is None:
        return None
    return tuple(i.strip() for i in (match["ids"] or "").split(",") if i.strip()), match["reason"].strip(" :-—")


def comments(text: str) -> list[tuple[int, bool, str]]:
    """(line, whether it stands alone on its line, text) of every comment in Python code that addresses omni-kit."""
    if _MARK not in text:
        return []
    found: list[tuple[int, bool, str]] = []
    try:
        found.extend(
            (token.start[0], not token.line[: token.start[1]].strip(), token.string)
            for token in tokenize.generate_tokens(io.StringIO(text).readline)
            if token.type == tokenize.COMMENT and _MARK in token.string
        )
    except (tokenize.TokenError, SyntaxError):
        return found
    return found


def suppressions(path: Path, text: str) -> tuple[list[Suppression], list[Finding]]:
    """Return the ignore comments of a Python file that count, and findings for those that do not."""
    found, wrong = [], []
    for line, alone, comment in comments(text):
        read = read_comment(comment)
        if read is None:
            continue
        rules, reason = read
        if rules and reason:
            found.append(Suppression(path, line, rules, range(line, line + (2 if alone else 1))))
        else:
            missing = "rule ids" if not rules else "reason"
            message = f"this comment suppresses nothing: it has no {missing}; write `# omni-kit: ignore[ID] reason`"
            wrong.append(Finding(message, path, line))
    return found, wrong
