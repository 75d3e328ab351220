"""The levels of an integration on the older version, so that a level that failed there is not blamed on an upgrade."""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from omni_kit.errors import OmniKitError
from omni_kit.isolation.programs import run_program
from omni_kit.parity.levels import BY_NAME
from omni_kit.pysource.library import Library
from omni_kit.verify.card import Card, load_card
from omni_kit.verify.pins import files_of, pinned

_COMPARING = 600.0  # seconds for the default levels of one model
_STATUS = {"pass": "passed", "fail": "failed"}


@dataclass(frozen=True)
class OlderLevels:
    """The status of each level on the older version: passed, failed or not tested.

    Attributes:
        source: where that is known from, a card's file or "parity"; the reason where no level is known.
    """

    levels: Mapping[str, str] = field(default_factory=dict)
    source: str = "not compared"

    def as_json(self) -> dict[str, Any]:
        """Return the levels for machines."""
        return asdict(self)

    def cell(self) -> str:
        """Return how many levels passed, as "5 of 6"; "-" where none is known."""
        passed = sum(one == "passed" for one in self.levels.values())
        return f"{passed} of {len(self.levels)}" if self.levels else "-"

    def remark(self, failed: Sequence[str], version: str) -> str:
        """Return what failing levels did on the older version, in one line; empty if that is not known."""
        by_status: dict[str, list[str]] = {}
        for level in failed:
            by_status.setdefault(self.levels.get(level, ""), []).append(level)
        said = {"failed": f"failed on {version}, too", "passed": f"passed on {version}"}
        return "; ".join(f"{', '.join(levels)} {said[one]}" for one, levels in by_status.items() if one in said)


def older_levels(folder: Path, places: Sequence[Path], library: Library) -> OlderLevels:
    """Return the levels of an integration on a version of a library, from its card or from a comparison.

    Args:
        places: directories that may contain a card; one counts if it is for these files and this version.
    """
    for file, card in _cards([folder, *places]):
        files = pinned(files_of(folder), folder)
        fits = card.pins.get("versions", {}).get(library.name) == library.version
        levels = {one.stage: one.status for one in card.stages if one.stage in BY_NAME and not one.left_out}
        if fits and levels and card.pins.get("files", {}).items() <= files.items():
            return OlderLevels(levels, file.name)
    return _compared(folder, library)


def _cards(places: Sequence[Path]) -> Iterator[tuple[Path, Card]]:
    for file in dict.fromkeys(one for place in places for one in sorted(place.glob("*card*.*"))):
        try:
            yield file, load_card(file).card
        except (OmniKitError, OSError):
            continue


def _compared(folder: Path, library: Library) -> OlderLevels:
    """Compare in a process that reads the older version."""
    options = [f"--{library.name}", str(library.root), "--format", "json"]
    program = [sys.executable, "-m", "omni_kit", "parity", str(folder), *options]
    try:
        answer = json.loads(run_program(program, timeout=_COMPARING, directory=Path.cwd()).stdout)
    except (OSError, ValueError) as error:
        return OlderLevels({}, f"not compared: {error}")
    levels = {one["level"]: _STATUS.get(one["status"], "not tested") for one in answer.get("levels", ())}
    return OlderLevels(levels, "parity" if levels else f"not compared: {answer.get('error')}")
