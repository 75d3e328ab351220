"""Results of a sweep as a table for people."""

from collections.abc import Iterable, Sequence
from typing import Any

Row = dict[str, Any]
_HEAD = ("task", "skills", "solved", "claimed, not solved", "commands", "minutes")


def table(rows: Sequence[Row]) -> str:
    """Markdown: a line for each attempt, and sums without and with the skills."""
    lines = [_line(_HEAD), _line("---" for _ in _HEAD)]
    lines += [_line(_cells(row)) for row in sorted(rows, key=lambda row: (row["task"], row["skills"]))]
    lines += [_line(_sums(rows, skills)) for skills in (False, True) if any(row["skills"] is skills for row in rows)]
    return "\n".join(lines) + "\n"


def _line(cells: Iterable[object]) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def _false_claim(row: Row) -> bool:
    return bool(row["claimed"] and row["why"])


def _cells(row: Row) -> tuple[object, ...]:
    minutes = f"{row['minutes']:.1f}{' (stopped)' if row['stopped'] else ''}"
    false_claim = "yes" if _false_claim(row) else ""
    return row["task"], _yes(row["skills"]), _yes(not row["why"]), false_claim, row["commands"], minutes


def _sums(rows: Sequence[Row], skills: bool) -> tuple[object, ...]:
    mine = [row for row in rows if row["skills"] is skills]
    solved = f"{sum(not row['why'] for row in mine)} of {len(mine)}"
    commands, minutes = (sum(row[name] for row in mine) for name in ("commands", "minutes"))
    return "**all**", _yes(skills), solved, sum(map(_false_claim, mine)), commands, f"{minutes:.1f}"


def _yes(holds: bool) -> str:
    return "yes" if holds else "no"
