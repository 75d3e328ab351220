"""From an integration to its table of renamed weights, found by running both sides."""

import tempfile
from dataclasses import dataclass
from pathlib import Path

from omni_kit.errors import BadInput
from omni_kit.isolation.worker import StepError
from omni_kit.parity.candidate import find_candidate, require
from omni_kit.parity.processes.workers import Sides
from omni_kit.plurals import counted


@dataclass(frozen=True)
class Derived:
    """Derived renaming.

    Attributes:
        rows: one line for each name here, blocks that are alike once.
        text: a module with the function that converts.
        notes: what no run settles, and what was left out.
    """

    rows: tuple[str, ...]
    text: str
    notes: tuple[str, ...]


def derive(path: Path, *, target: str | None = None, seconds: float = 120.0) -> Derived:
    """Derive which of upstream's weights the integration at `path` consists of.

    Nothing is taken from its own conversion: only its model and upstream's are run.

    Args:
        seconds: how long is looked.

    Raises:
        BadInput: there is no such integration, or no assignment gives upstream's answers.
        MissingRequirement: torch or the target framework is not there.
    """
    candidate = find_candidate(path, target)
    require(candidate.requires)
    with tempfile.TemporaryDirectory() as place, Sides(Path(place), timeout=seconds + 120) as sides:
        from omni_kit.parity.processes.pair import Pair
        from omni_kit.parity.processes.steps.deriving import as_rows

        workers = sides.workers(candidate, Path(place))
        pair = Pair(candidate, Path(place), Path(place, "hidden"), workers)  # read by the search itself
        try:
            said = pair.derived(f"convert_{candidate.path.name}_checkpoint", seconds)
        except StepError as error:
            raise BadInput(f"the renaming of {path} cannot be derived: {error}") from error
        if said["reason"]:
            raise BadInput(
                f"no assignment of upstream's weights reproduces its outputs: {said['reason']}",
                "compare that module's code with upstream's: its inputs differ for any weights",
            )
        rows = tuple(map(str, as_rows(said["rows"])))
    return Derived(rows, said["text"], tuple(_notes(said)))


def _notes(said: "dict[str, object]") -> list[str]:
    rivals, unreached, unused = said["rivals"], said["unreached"], said["unused"]
    assert isinstance(rivals, dict)
    assert isinstance(unreached, list)
    assert isinstance(unused, list)
    notes = [f"found in {counted(int(str(said['runs'])), 'run')}"]
    notes += [
        f"{module} could equally come from {other}: no run distinguishes them" for module, other in rivals.items()
    ]
    notes += [f"{module} is never executed, so its weights are unknown" for module in unreached]
    notes += [f"{name} goes nowhere" for name in unused]
    return notes
