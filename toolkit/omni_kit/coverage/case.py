"""The result of one model, and the page about all."""

import re
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, cast, get_args

from omni_kit.errors import OmniKitError
from omni_kit.isolation.pool import map_in_forks
from omni_kit.parity.processes.workers import Sides
from omni_kit.plurals import counted
from omni_kit.targets.sides import NOT_COMPARED
from omni_kit.verify.card import TODO, Stage
from omni_kit.verify.run import CHECK, DIFFERENCE, LEFT_OUT, verify

CELLS = re.compile(r"(?<!\\)\|")
"""The borders of a row's cells in a table."""
_PROCESSES = 2
_LONGEST = 300
_TO_FINISH = frozenset({TODO, CHECK})  # the stages that are not tested while to-dos are left

Outcome = Literal["proven", "not tested", "to finish", "refused", "no toy", "fault"]


@dataclass(frozen=True)
class Case:
    """The result of one model.

    Attributes:
        about: what is told of it next to its name.
        reason: why it is not proven; for a proven one the largest relative difference of the levels.
    """

    name: str
    about: str
    outcome: Outcome
    reason: str


# Brings one model through the path: its name, the place below which it writes, and processes that are there.
CoverOne = Callable[[str, Path, Sides], Case]


def in_shares(names: Sequence[str], cover_one: CoverOne) -> list[Case]:
    """Covers models in processes side by side; in the order given."""
    shares = [names[start::_PROCESSES] for start in range(_PROCESSES)]
    done = {case.name: case for cases in map_in_forks(partial(_share, cover_one), shares, _PROCESSES) for case in cases}
    return [done[name] for name in names]


def _share(cover_one: CoverOne, names: Sequence[str]) -> list[Case]:
    with tempfile.TemporaryDirectory(prefix="omni-kit-coverage-") as place:
        logs = Path(place) / "logs"
        logs.mkdir()
        with Sides(logs) as sides:
            return [_told(cover_one(name, Path(place) / name, sides)) for name in names]


def _told(case: Case) -> Case:
    """Print a case as it ends."""
    print(f"{case.name}: {case.outcome}: {case.reason}", file=sys.stderr, flush=True)
    return case


def proof(directory: Path, sides: Sides) -> tuple[Outcome, str]:
    """Return the summary of an integration's quick card."""
    try:
        card = verify(directory, quick=True, fresh=True, sides=sides)
    except OmniKitError as error:
        return "fault", error.message
    for outcome, status in (("fault", "failed"), ("no toy", "not tested")):  # what neither side could answer
        wrong = [
            stage
            for stage in card.stages
            if stage.status == status and stage.reason != LEFT_OUT and stage.stage not in _TO_FINISH
        ]
        if wrong:
            return cast(Outcome, outcome), f"{wrong[0].stage}: {wrong[0].reason}"
    left = [what for stage in card.stages if stage.stage == TODO for what in stage.untried]
    if left:
        return "to finish", f"{counted(left, 'to-do')}: {left[0].partition(' ')[2]}"
    figure = f"{max(_difference(stage) for stage in card.stages):.0e}"
    return "proven", "; ".join([figure, *(note for note in card.notes if note.startswith(NOT_COMPARED))])


def _difference(stage: Stage) -> float:
    """Return the largest relative difference that a stage has measured."""
    return (
        float(stage.figure.removeprefix(DIFFERENCE).partition(";")[0]) if stage.figure.startswith(DIFFERENCE) else 0.0
    )


def as_markdown(
    heading: Sequence[str], meaning: Mapping[Outcome, str], columns: Sequence[str], cases: Sequence[Case]
) -> str:
    """Return the page: its heading, how many of what, and a table.

    Args:
        columns: what a name is called, and what is told next to it; `about` of a case has all but the first.
    """
    counts = Counter(case.outcome for case in cases)
    lines = [
        *heading,
        "",
        *(f"- **{counts[outcome]} {outcome}**: {means}." for outcome, means in meaning.items()),
        "",
        f"| {' | '.join(columns)} | outcome | largest relative difference, or why |",
        "|---" * (len(columns) + 2) + "|",
        *(f"| {case.name} | {case.about} | {case.outcome} | {_shown(case.reason)} |" for case in cases),
    ]
    return "\n".join(lines) + "\n"


def renewed(page: str, cases: Sequence[Case]) -> list[Case]:
    """Return the cases of a page that was written before, with newer ones in place of those of the same name;
    by name.
    """
    rows = (CELLS.split(line)[1:-1] for line in page.splitlines() if line.startswith("| "))
    before = ([cell.strip() for cell in row] for row in rows)
    known = {
        name: Case(name, " | ".join(about), cast(Outcome, outcome), reason.replace("\\|", "|"))
        for name, *about, outcome, reason in before
        if outcome in get_args(Outcome)
    }
    known |= {case.name: case for case in cases}
    return [known[name] for name in sorted(known)]


def _shown(reason: str) -> str:
    """Return one cell: no column ends in it, and no path of the machine that it was found on stands in it."""
    text = re.sub(r"(/[\w.+-]+)+/(?=(site-packages|toolkit)/)", "", reason).replace("|", "\\|")
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
