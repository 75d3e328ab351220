"""The error of every module, not only of the first that adds any."""

from omni_kit.isolation.worker import StepError
from omni_kit.parity.case import Case
from omni_kit.parity.compare.modules import Compared
from omni_kit.parity.compare.trace import ModuleCall, Recording
from omni_kit.parity.report.report import ModuleError
from omni_kit.targets.sides import Ability


def module_errors(case: Case) -> list[ModuleError]:
    """Return the added and inherited error of each module, in the order of first calls; empty if the model did not run.

    What a module hands wrongly to one of its parts is its own error, as in the search for the first divergence; and
    one that goes another way to a right answer adds none.
    """
    if Ability.trace not in case.offers:
        return []
    try:
        free, replay = case.free, case.replayed
    except StepError:
        return []
    added, order = _added(replay), _order(free.candidate)
    found: dict[str, ModuleError] = {}
    for call in free.candidate.calls:
        before = found.get(call.module)
        error = _error(free, call, added.get(call.module, 0.0), order[call.module])
        found[call.module] = _larger(before, error) if before else error
    return list(found.values())


def _added(replay: Compared) -> dict[str, float]:
    """Module -> the largest error in what it returns or passes on."""
    added: dict[str, float] = {}
    for kind, number in replay.candidate.events:
        call = replay.candidate.calls[number]
        if replay.partner(call) is None:
            continue
        at_fault = (
            call if kind == "out" or call.parent < 0 else replay.paired_around(replay.candidate.calls[call.parent])
        )
        added[at_fault.module] = max(added.get(at_fault.module, 0.0), replay.error(call, kind))
    return added


def _order(recording: Recording) -> dict[str, int]:
    """Module -> its place in the order of first answers."""
    answers = (recording.calls[number].module for kind, number in recording.events if kind == "out")
    return {module: place for place, module in enumerate(dict.fromkeys(answers))}


def _error(free: Compared, call: ModuleCall, added: float, answered: int) -> ModuleError:
    paired = free.partner(call) is not None
    inherited, grown = (free.error(call, side) if paired else 0.0 for side in ("in", "out"))
    return ModuleError(call.module, call.kind, paired, added if grown else 0.0, inherited, grown, answered)


def _larger(one: ModuleError, other: ModuleError) -> ModuleError:
    """Return the larger errors of one module in two calls."""
    figures = {name: max(getattr(one, name), getattr(other, name)) for name in ("added", "inherited", "grown")}
    return ModuleError(one.module, one.kind, one.paired or other.paired, answered=one.answered, **figures)
