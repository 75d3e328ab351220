"""Would it have been noticed? Plants faults in the candidate, one after the other, and asks the levels."""

import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain

from omni_kit.isolation.worker import StepError
from omni_kit.parity.case import Case
from omni_kit.parity.compare.files import same_tensors
from omni_kit.parity.compare.pairing import pair_calls
from omni_kit.parity.compare.tensors import compare_exactly
from omni_kit.parity.evidence import FaultEvidence
from omni_kit.parity.faults.sharing import kinds_between
from omni_kit.parity.levels import BY_NAME, PROCESS_LEVELS, judge
from omni_kit.parity.levels.mesh import judge_trained
from omni_kit.parity.processes.outcomes import CANDIDATE, REFERENCE
from omni_kit.parity.processes.training import Trained
from omni_kit.parity.prove_calls import prove_calls
from omni_kit.parity.prove_stages import prove_stages
from omni_kit.parity.report.report import InjectionResult, Proof, proof_of
from omni_kit.targets.sides import Ability
from omni_kit.toys.reach import unexercised

_LINE = re.compile(r"([\w.]+):(\d+)\)")  # at the end of an error's message
_NEEDED = ("roundtrip", "forward", "backward")


@dataclass(frozen=True)
class PlacedFault:
    """Place of a fault, as the candidate's process reports it."""

    number: int
    kind: str
    module: str
    holders: tuple[str, ...]
    what: str
    stored: bool
    method: tuple[str, int, int] | None = None

    def raises(self, error: str) -> bool:
        """Return whether an error comes from a line of the method that has the fault."""
        found = _LINE.search(error)
        if found is None or self.method is None:
            return False
        file, first, last = self.method
        return found[1] == file and first <= int(found[2]) <= last

    def __str__(self) -> str:
        return f"{self.kind} in {self.module or 'the model'} ({self.what})"


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
    for level in (*_needed(case), *(level for level in levels if level in PROCESS_LEVELS)):
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
        planted, idle = _inside(case, say)
        planted += filter(None, (one.result() for one in later))
    finally:
        between.shutdown(wait=False, cancel_futures=True)
    return proof_of(planted, idle)


def _inside(case: Case, say: Callable[[str], None]) -> tuple[list[InjectionResult], list[str]]:
    """The faults of the model and of its calls, and the names of those that change nothing."""
    planted: list[InjectionResult] = []
    idle: list[str] = []
    faults = [PlacedFault(**{**place, "holders": tuple(place["holders"])}) for place in case.pair.places()]
    for done, fault in enumerate(faults, 1):
        judged = _try(case, fault)
        if judged is None:
            continue
        if judged.idle:
            idle.append(str(fault))
        else:
            planted.append(judged)
        say(f"injected {done} of {len(faults)}: {fault.kind}: {judged}")
    if Ability.scenarios in case.offers:
        for judged in prove_calls(case, say):
            idle += [judged.name] if judged.idle else []
            planted += [] if judged.idle else [judged]
    return planted, idle


def _needed(case: Case) -> list[str]:
    """Return the levels that are asked about each fault, of those that both sides can run."""
    return [level for level in _NEEDED if BY_NAME[level].needs <= case.offers]


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


def _try(case: Case, fault: PlacedFault) -> InjectionResult | None:
    """None if the place turned out, while running, to be none."""
    out = case.pair.where / CANDIDATE / "planted"
    try:
        outcome = case.pair.run_planted(fault.number, out)
    except StepError as error:
        if not error.blames_candidate:
            raise
        by, located = ("error",), fault.raises(str(error))
        return InjectionResult(str(fault), fault.kind, fault.module, by, str(error), located=located)
    try:
        if not outcome["reached"]:
            return None
        if not outcome["changed"]:
            return None if outcome["unfit"] else InjectionResult(str(fault), fault.kind, fault.module, idle=True)
        return _judged(Case(case.pair, FaultEvidence(case.pair, fault.number, out)), fault)
    finally:
        shutil.rmtree(out, ignore_errors=True)


def _judged(faulty: Case, fault: PlacedFault) -> InjectionResult:
    failed = []
    levels = _needed(faulty)
    for level in levels if fault.stored else levels[1:]:
        if judge(level, faulty).status == "fail":
            failed.append(level)
        if faulty.divergence is not None:
            break
    if not failed and (_silent(faulty) or _unheard(faulty, fault)):
        return InjectionResult(str(fault), fault.kind, fault.module, idle=True)
    blamed = faulty.divergence.module if faulty.divergence else _attention_blamed(faulty) or _misloaded(faulty, failed)
    holders = (*fault.holders, fault.module)
    right = {*filter(None, holders), *_shown(faulty, holders)}
    return InjectionResult(str(fault), fault.kind, fault.module, tuple(failed), blamed, located=blamed in right)


def _unheard(faulty: Case, fault: PlacedFault) -> bool:
    """Return whether upstream's outputs have no gradient where the fault is."""
    if Ability.gradient in faulty.offers:
        parameters = faulty.pair.ran()
        idle = {*unexercised(parameters, faulty.pair.results_of(REFERENCE, "gradients"))}
        inside = [name for name in parameters if any(name.startswith(f"{holder}.") for holder in fault.holders)]
        return bool(inside) and idle.issuperset(inside)
    return False


def _silent(faulty: Case) -> bool:
    """Bit for bit, every answer and gradient is that of the candidate without the fault."""
    asked = ("outputs", "gradients") if Ability.gradient in faulty.offers else ("outputs",)
    return all(same_tensors(faulty.evidence.results(what), faulty.pair.results(what)) for what in asked)


def _attention_blamed(faulty: Case) -> str:
    """Return the module of the first difference in how attention is called."""
    found = faulty.attention_differences()
    return found[0].partition(" attends with ")[0] if found else ""


def _misloaded(faulty: Case, failed: Sequence[str]) -> str:
    """Return the module of the first tensor that is loaded wrongly; the nearest one around it with a partner."""
    if _NEEDED[0] not in failed:
        return ""
    loaded = compare_exactly(faulty.pair.state(), faulty.evidence.loaded())
    wrong = next(chain(loaded.missing, (worst.name for worst in loaded.worst)), "")
    reference, candidate = faulty.pair.recordings()
    partners = {
        reference.calls[number].module: module for (module, _), number in pair_calls(reference, candidate).items()
    }
    while wrong and wrong not in partners:
        wrong = wrong.rpartition(".")[0]
    return partners.get(wrong, "") or next((call.kind for call in candidate.calls if not call.module), "")


def _shown(faulty: Case, modules: Iterable[str]) -> Iterator[str]:
    """Yield the names of modules in reports: its own, or that of the nearest one around it with a partner upstream."""
    reference, candidate = faulty.pair.recordings()
    known = {module for module, _ in pair_calls(reference, candidate)}
    for module in modules:
        while module and module not in known:
            module = module.rpartition(".")[0]
        yield module or next((call.kind for call in candidate.calls if not call.module), "")
