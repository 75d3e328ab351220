"""What became of one model, and the page that tells it of all."""

import re
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from omni_kit.errors import OmniKitError
from omni_kit.parity import run_parity
from omni_kit.parity.processes.workers import Sides

LEVELS = ("keys", "roundtrip", "forward", "backward")
_PROCESSES = 2
_LONGEST = 300

Outcome = Literal["proven", "refused", "no toy", "fault"]


@dataclass(frozen=True)
class Case:
    """What became of one model.

    Attributes:
        about: what is told of it beside its name.
        reason: why it is not proven; for a proven one the largest relative difference of the levels.
    """

    name: str
    about: str
    outcome: Outcome
    reason: str


# Brings one model through the path: its name, the place below which it writes, and processes that are there.
CoverOne = Callable[[str, Path, Sides], Case]


def in_shares(names: Sequence[str], cover_one: CoverOne) -> list[Case]:
    """Covers models in processes beside each other; in the order given."""
    shares = [names[start::_PROCESSES] for start in range(_PROCESSES)]
    with ProcessPoolExecutor(_PROCESSES) as pool:
        done = {case.name: case for cases in pool.map(partial(_share, cover_one), shares) for case in cases}
    return [done[name] for name in names]


def _share(cover_one: CoverOne, names: Sequence[str]) -> list[Case]:
    with tempfile.TemporaryDirectory(prefix="omni-kit-coverage-") as place:
        logs = Path(place) / "logs"
        logs.mkdir()
        with Sides(logs) as sides:
            return [cover_one(name, Path(place) / name, sides) for name in names]


def proof(directory: Path, checkpoint: Path, sides: Sides) -> tuple[Outcome, str]:
    """What the static rules and the levels say of an integration, on a toy checkpoint."""
    from omni_checkers import check

    try:
        found = [finding for finding in check([directory]).findings if finding.severity == "error"]
        if found:
            return "fault", f"check: {found[0].rule} {found[0].message}"
        report = run_parity(directory, LEVELS, checkpoint=checkpoint, sides=sides)
    except OmniKitError as error:
        return "fault", error.message
    failed = [level for level in report.levels if level.status != "pass"]
    if failed:  # an error is neither side's answer: upstream could not be asked
        return "no toy" if failed[0].status == "error" else "fault", f"{failed[0].level}: {failed[0].reason}"
    return "proven", f"{max(level.max_rel or 0.0 for level in report.levels):.0e}"


def as_markdown(
    heading: Sequence[str], meaning: Mapping[Outcome, str], columns: Sequence[str], cases: Sequence[Case]
) -> str:
    """The page: its heading, how many of what, and a table.

    Args:
        columns: what a name is called, and what is told beside it.
    """
    counts = Counter(case.outcome for case in cases)
    lines = [
        *heading,
        "",
        *(f"- **{counts[outcome]} {outcome}**: {means}." for outcome, means in meaning.items()),
        "",
        f"| {' | '.join(columns)} | outcome | largest relative difference, or why |",
        "|---|---|---|---|",
        *(f"| {case.name} | {case.about} | {case.outcome} | {_shown(case.reason)} |" for case in cases),
    ]
    return "\n".join(lines) + "\n"


def _shown(reason: str) -> str:
    """One cell: no column ends in it, and no path of the machine that it was found on stands in it."""
    text = re.sub(r"(/[\w.+-]+)+/(?=(site-packages|toolkit)/)", "", reason).replace("|", "\\|")
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
