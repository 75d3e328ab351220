"""Every causal language model of the installed transformers through the whole path: proven, or why not.

python -m omni_kit.coverage [TYPE ...] [--into docs/models.md]
"""

import argparse
import re
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from omni_kit.errors import BadInput, OmniKitError
from omni_kit.files import write_atomic
from omni_kit.parity import make_toy_checkpoint, run_parity
from omni_kit.parity.processes.workers import Sides
from omni_kit.patchgen import run_config
from omni_kit.scaffold import new_model
from omni_kit.upstream.library import find_library
from omni_kit.upstream.subject import open_source
from omni_kit.upstream.transformers.autoclasses import CAUSAL_TABLE, auto_table

LEVELS = ("keys", "roundtrip", "forward", "backward")
TARGET = "veomni"
_PROCESSES = 2
_LONGEST = 300

Outcome = Literal["proven", "refused", "no toy", "fault"]
_MEANING: dict[Outcome, str] = {
    "proven": f"new-model, patchgen, check and parity at {', '.join(LEVELS)} pass, with no edit by hand",
    "refused": "new-model says why it would not be right, and writes nothing",
    "no toy": "transformers cannot build or run it small, so nothing could be compared",
    "fault": "something on the way failed",
}


@dataclass(frozen=True)
class Case:
    """What became of one model_type.

    Attributes:
        kind: as `inspect` tells it; empty where transformers has no config of that name.
        reason: why it is not proven; for a proven one the largest relative difference of the levels.
    """

    model_type: str
    kind: str
    outcome: Outcome
    reason: str


def model_types() -> list[str]:
    """Every model_type that the installed transformers has a causal language model for, in order."""
    return sorted(auto_table(find_library("transformers"), CAUSAL_TABLE))


def cover(types: Sequence[str]) -> list[Case]:
    """Brings models through the path, in processes beside each other; in the order given."""
    shares = [types[start::_PROCESSES] for start in range(_PROCESSES)]
    with ProcessPoolExecutor(_PROCESSES) as pool:
        done = {case.model_type: case for cases in pool.map(_cover_share, shares) for case in cases}
    return [done[name] for name in types]


def cover_with(types: Sequence[str], place: Path, sides: Sides) -> Iterator[Case]:
    """The same one after the other, with processes that are there; what is written stays below `place`."""
    for name in types:
        yield _case(name, place / name, sides)


def _cover_share(types: Sequence[str]) -> list[Case]:
    with tempfile.TemporaryDirectory(prefix="omni-kit-coverage-") as place:
        logs = Path(place) / "logs"
        logs.mkdir()
        with Sides(logs) as sides:
            return list(cover_with(types, Path(place), sides))


def _case(name: str, place: Path, sides: Sides) -> Case:
    kind, package = "", re.sub(r"\W", "_", name)
    try:
        kind = open_source(name).kind
        new_model(package, name, target=TARGET, into=place, dry_run=True)
    except OmniKitError as error:
        return Case(name, kind, "refused", error.message)
    try:
        checkpoint = make_toy_checkpoint(name, place / "checkpoint", sides=sides)
    except BadInput as error:
        return Case(name, kind, "no toy", error.message.partition(": ")[2])
    try:
        new_model(package, str(checkpoint), target=TARGET, into=place)
    except OmniKitError as error:
        return Case(name, kind, "refused", error.message)
    return Case(name, kind, *_proof(place / package, checkpoint, sides))


def _proof(directory: Path, checkpoint: Path, sides: Sides) -> tuple[Outcome, str]:
    from omni_checkers import check

    try:
        for config in directory.glob("*_patch_gen_config.py"):
            wrong = [item.message for item in run_config(config).diagnostics if item.severity == "error"]
            if wrong:
                return "fault", f"patchgen: {wrong[0]}"
        found = [finding for finding in check([directory]).findings if finding.severity == "error"]
        if found:
            return "fault", f"check: {found[0].rule} {found[0].message}"
        report = run_parity(directory, LEVELS, checkpoint=checkpoint, sides=sides)
    except OmniKitError as error:
        return "fault", error.message
    failed = [f"{level.level}: {level.reason}" for level in report.levels if level.status != "pass"]
    if failed:
        return "fault", failed[0]
    return "proven", f"{max(level.max_rel or 0.0 for level in report.levels):.0e}"


def as_markdown(cases: Sequence[Case]) -> str:
    """The page: how many of what, and a table."""
    library = find_library("transformers")
    counts = Counter(case.outcome for case in cases)
    lines = [
        "# Causal language models of transformers, brought into VeOmni",
        "",
        f"Made by `make coverage-models` with {library.name} {library.version}: every model_type that has a causal",
        "language model, from a toy with the library's own classes. A toy is small and keeps the model's decisions.",
        "",
        *(f"- **{counts[outcome]} {outcome}**: {meaning}." for outcome, meaning in _MEANING.items()),
        "",
        "| model_type | kind | outcome | largest relative difference, or why |",
        "|---|---|---|---|",
        *(f"| {case.model_type} | {case.kind} | {case.outcome} | {_shown(case.reason)} |" for case in cases),
    ]
    return "\n".join(lines) + "\n"


def _shown(reason: str) -> str:
    """One cell: no column ends in it, and no path of the machine that it was found on stands in it."""
    text = re.sub(r"(/[\w.+-]+)+/(?=(site-packages|toolkit)/)", "", reason).replace("|", "\\|")
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def main() -> None:
    """Covers what was asked for, and writes or prints the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("types", nargs="*", metavar="TYPE", help="every one by default")
    parser.add_argument("--into", type=Path, help="the page to write; printed by default")
    given = parser.parse_args()
    page = as_markdown(cover(given.types or model_types()))
    if given.into:
        write_atomic(given.into, page)
    else:
        print(page, end="")


if __name__ == "__main__":
    main()
