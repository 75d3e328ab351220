"""Injects faults into the candidate, one after the other, and reports which of them the levels detect."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from omni_kit.isolation.worker import StepError
from omni_kit.parity.case import Case
from omni_kit.parity.fault_runs import PlacedFault, needed_levels, placed_faults, try_fault
from omni_kit.parity.faults.sharing import kinds_between
from omni_kit.parity.levels import PROCESS_LEVELS, judge
from omni_kit.parity.levels.mesh import judge_trained
from omni_kit.parity.processes.training import Trained
from omni_kit.parity.prove_calls import prove_calls
from omni_kit.parity.prove_stages import prove_stages
from omni_kit.parity.report.report import InjectionResult, Proof, proof_of
from omni_kit.targets.sides import Ability
from omni_kit.toys.configs.variants import Extent

# Configs in which lines without effect on the toy get one: every field moved, in as few configs as upstream accepts.
_EXTENTS = (Extent.together, Extent.numbers, Extent.switches)


def prove(case: Case, levels: Sequence[str] = (), say: Callable[[str], None] = lambda line: None) -> Proof | None:
    """Plants every fault that fits, and reports which were noticed, and blamed on the right module.

    None, with a note, where the integration itself is not at parity: nothing could be told from a fault then.

    Args:
        levels: those that were asked for; on those of several processes, faults are injected between these, too.
    """
    if Ability.stages in case.offers:
        return prove_stages(case, say)
    if Ability.trace not in case.offers:
        case.note("no fault was injected: neither side has a trace, so no module could be localised")
        return None
    shared = []
    for level in (*needed_levels(case), *(level for level in levels if level in PROCESS_LEVELS)):
        found = judge(level, case)
        if level in PROCESS_LEVELS and not found.applicable:
            continue  # such as the sharing of experts by a model that has none
        shared += [level] if level in PROCESS_LEVELS else []
        if found.status != "pass":
            case.note(f"no fault was injected: {level} already fails without a fault ({found.reason})")
            return None
    between = ThreadPoolExecutor(1)  # in processes of its own, which nobody else asks for anything
    try:
        later = [between.submit(_try_between, case, level, kind) for level in shared for kind in kinds_between(level)]
        planted = _inside(case, say)
        planted += filter(None, (one.result() for one in later))
    finally:
        between.shutdown(wait=False, cancel_futures=True)
    return proof_of(planted)


def _inside(case: Case, say: Callable[[str], None]) -> list[InjectionResult]:
    """Return the results of the faults of the model and of its calls."""
    results: list[InjectionResult] = []
    waiting: list[tuple[PlacedFault, InjectionResult]] = []
    faults = placed_faults(case)
    for done, fault in enumerate(faults, 1):
        found = try_fault(case, fault)
        if found is None:
            continue
        if found.idle:
            waiting.append((fault, found))
        else:
            results.append(found)
        say(f"injected {done} of {len(faults)}: {fault.kind}: {found}")
    if Ability.scenarios in case.offers:
        results += prove_calls(case, say)
    return [*results, *_with_other_configs(case, waiting, say)]


def _with_other_configs(
    case: Case, waiting: list[tuple[PlacedFault, InjectionResult]], say: Callable[[str], None]
) -> list[InjectionResult]:
    """Inject faults that are idle on the toy into models of other configs, until each changes something.

    One that never does keeps the result that it has on the toy.
    """
    results: list[InjectionResult] = []
    for extent in _EXTENTS if waiting and case.pair.given is None else ():
        for name, pair in case.pair.variants(extent) if waiting else ():
            if isinstance(pair, StepError) or not waiting:
                continue
            other = Case(pair)
            if any(judge(level, other).status != "pass" for level in needed_levels(other)):
                continue  # what the levels say of a fault would not be about the fault
            shown = [_shown_with(name, other, fault) for fault, _ in waiting]
            waiting = [one for one, found in zip(waiting, shown, strict=True) if found is None]
            for found in filter(None, shown):
                results.append(found)
                say(f"injected with {name}: {found.kind}: {found}")
    return [*results, *(found for _, found in waiting)]


def _shown_with(name: str, other: Case, fault: PlacedFault) -> InjectionResult | None:
    """Return the result of a fault in a model of another config; None if it is idle there, too, or has no place."""
    same = [one for one in placed_faults(other) if (one.kind, one.what) == (fault.kind, fault.what)]
    place = next((one for one in same if one.module == fault.module), same[0] if same else None)
    found = try_fault(other, place) if place is not None else None
    return replace(found, name=f"{found.name} with {name}") if found is not None and not found.idle else None


def _try_between(case: Case, level: str, kind: str) -> InjectionResult | None:
    """Return a fault that no module has: it is where it belongs when the level of that kind of sharing fails.

    None if it changes nothing; the first mesh that shows it is enough.
    """
    name, changed = f"{kind} between the processes of {level}", False
    trained = [one for one in case.pair.trained(level) if isinstance(one, Trained)]
    alone = [one for one in trained if one.alone]
    for one in trained:
        if one.alone:
            continue
        try:
            found, reached = case.pair.trained_wrongly(level, one, alone[0], kind)
        except StepError as error:
            # The level, which passes without the fault, fails by what a process raises or waits for in vain.
            by = (level,) if error.blames_candidate else ("error",)
            return InjectionResult(name, kind, level, by, str(error), located=error.blames_candidate)
        if reached and judge_trained(case, [*alone, found]).reason:
            return InjectionResult(name, kind, level, (level,), level, located=True)
        changed |= reached
    return InjectionResult(name, kind, level) if changed else None
