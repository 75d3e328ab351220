"""Runs the candidate with one injected fault, and compares it by the levels."""

import re
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from omni_kit.isolation.worker import StepError
from omni_kit.parity.case import Case
from omni_kit.parity.compare.files import same_tensors
from omni_kit.parity.compare.tensors import compare_exactly
from omni_kit.parity.evidence import Evidence, FaultEvidence
from omni_kit.parity.levels import BY_NAME, judge
from omni_kit.parity.processes.outcomes import CANDIDATE, REFERENCE
from omni_kit.parity.report.report import InjectionResult
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


def placed_faults(case: Case) -> list[PlacedFault]:
    """Return every place of the candidate's model in which a fault fits."""
    return [PlacedFault(**{**place, "holders": tuple(place["holders"])}) for place in case.pair.places()]


def needed_levels(case: Case) -> list[str]:
    """Return the levels that are asked about each fault, of those that both sides can run."""
    return [level for level in _NEEDED if BY_NAME[level].needs <= case.offers]


def try_fault(case: Case, fault: PlacedFault) -> InjectionResult | None:
    """Return whether the levels detect a fault; None if the place turned out, while running, not to be one."""
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
    levels = needed_levels(faulty)
    for level in levels if fault.stored else levels[1:]:
        if judge(level, faulty).status == "fail":
            failed.append(level)
        if faulty.divergence is not None:
            break
    if not failed and ((silent := _silent(faulty, faulty.evidence)) or _unheard(faulty, fault)):
        equal = silent and _is_used(faulty, fault)
        return InjectionResult(str(fault), fault.kind, fault.module, idle=True, equal=equal)
    blamed = faulty.divergence.module if faulty.divergence else _attention_blamed(faulty) or _misloaded(faulty, failed)
    holders = (*fault.holders, fault.module)
    right = {*filter(None, holders), *_shown(faulty, holders)}
    return InjectionResult(str(fault), fault.kind, fault.module, tuple(failed), blamed, located=blamed in right)


def _is_used(faulty: Case, fault: PlacedFault) -> bool:
    """Return whether outputs or gradients depend on what the code computes at a place: noise there changes them.

    A fault that changes the value there and nothing else is then equal to the right code.
    """
    out = faulty.pair.where / CANDIDATE / "noisy"
    try:
        noisy = faulty.pair.run_noisy(fault.number, out)
        return noisy and not _silent(faulty, FaultEvidence(faulty.pair, fault.number, out))
    except StepError as error:
        if not error.blames_candidate:
            raise
        return True
    finally:
        shutil.rmtree(out, ignore_errors=True)


def _unheard(faulty: Case, fault: PlacedFault) -> bool:
    """Return whether upstream's outputs have no gradient where the fault is."""
    if Ability.gradient in faulty.offers:
        parameters = faulty.pair.ran()
        idle = {*unexercised(parameters, faulty.pair.results_of(REFERENCE, "gradients"))}
        inside = [name for name in parameters if any(name.startswith(f"{holder}.") for holder in fault.holders)]
        return bool(inside) and idle.issuperset(inside)
    return False


def _silent(faulty: Case, evidence: Evidence) -> bool:
    """Return whether every output and gradient is, bit for bit, that of the candidate without the fault."""
    asked = ("outputs", "gradients") if Ability.gradient in faulty.offers else ("outputs",)
    return all(same_tensors(evidence.results(what), faulty.pair.results(what)) for what in asked)


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
    pairs = faulty.pair.paired_calls()
    partners = {reference.calls[number].module: module for (module, _), number in pairs.items()}
    while wrong and wrong not in partners:
        wrong = wrong.rpartition(".")[0]
    return partners.get(wrong, "") or next((call.kind for call in candidate.calls if not call.module), "")


def _shown(faulty: Case, modules: Iterable[str]) -> Iterator[str]:
    """Yield the names of modules in reports: its own, or that of the nearest one around it with a partner upstream."""
    _, candidate = faulty.pair.recordings()
    known = {module for module, _ in faulty.pair.paired_calls()}
    for module in modules:
        while module and module not in known:
            module = module.rpartition(".")[0]
        yield module or next((call.kind for call in candidate.calls if not call.module), "")
