"""Coverage of each requirement and failure mode: `python -m omni_checkers.coverage docs/coverage.md [--check]`."""

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from omni_checkers.engine.registry import all_rules
from omni_checkers.engine.rule import Rule
from omni_kit.files import write_atomic

_DATA = Path(__file__).with_name("coverage.yaml")
_HEAD = """\
<!-- Made from the rules and checkers/omni_checkers/coverage.yaml; change it there. -->
# Coverage

Requirements of the integration guides, and failures seen in practice, with what covers each: a rule of
`omni-kit check`, a level of `omni-kit parity`, a command, a template or a skill. A `fault` is one that
`omni-kit parity --prove` injects. Where nothing covers an entry, the note gives the reason."""


@dataclass(frozen=True)
class Row:
    """One line of the table.

    Attributes:
        claims: what covers it, each "kind:name".
        about: the requirement or the failure, in one sentence.
        note: what stays uncovered, or why nothing covers it; "later" for a target that comes later.
    """

    id: str
    about: str
    claims: tuple[str, ...]
    note: str


def obligations() -> list[Row]:
    """Return a row for every requirement of the guides."""
    return _rows("obligations")


def failure_modes() -> list[Row]:
    """Return a row for every failure mode."""
    return _rows("failure_modes")


def page() -> str:
    """Return the page with both tables."""
    parts = [_HEAD]
    for heading, rows in (("Obligations", obligations()), ("Failure modes", failure_modes())):
        covered = sum(bool(row.claims) for row in rows)
        later = sum(row.note.startswith("later: ") for row in rows)
        left = len(rows) - covered - later
        counts = f"{len(rows)}: {covered} covered, {later} wait for a target, {left} not covered, with the reason."
        lines = ["| id | what | covered by | note |", "|---|---|---|---|", *map(_line, rows)]
        parts += [f"## {heading}", counts, "\n".join(lines)]
    return "\n\n".join(parts) + "\n"


@cache
def _data() -> Mapping[str, Any]:
    found: Mapping[str, Any] = yaml.safe_load(_DATA.read_text(encoding="utf-8"))
    return found


def _rows(kind: str) -> list[Row]:
    return [_row(name, entry, kind) for name, entry in _data()[kind].items()]


def _row(name: str, entry: Mapping[str, Any], kind: str) -> Row:
    rules = [f"rule:{rule.id}" for rule in all_rules() if name in _named(rule, kind)]
    claims = tuple(dict.fromkeys([*rules, *entry.get("by", [])]))
    later = entry.get("later", "")
    return Row(name, entry["says"], claims, f"later: {later}" if later and not claims else entry.get("why", ""))


def _named(rule: type[Rule], kind: str) -> Iterable[str]:
    return rule.obligations if kind == "obligations" else rule.failure_modes


def _line(row: Row) -> str:
    about = row.about.replace("|", "\\|")
    return f"| {row.id} | {about} | {' '.join(map(_linked, row.claims))} | {row.note} |"


def _linked(claim: str) -> str:
    kind, _, name = claim.partition(":")
    return f"[{claim}](rules/{name}.md)" if kind == "rule" else f"`{claim}`"


def main(arguments: list[str]) -> int:
    """Write the page to a file, or with --check compare it with the file."""
    file, made = Path(arguments[0]), page()
    if "--check" in arguments:
        same = file.is_file() and file.read_text(encoding="utf-8") == made
        print("up to date" if same else f"{file} is out of date")
        return 0 if same else 1
    write_atomic(file, made)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
