"""The level of the kernel slots: each is filled alone, must be called, and must change nothing."""

from dataclasses import dataclass

from omni_kit.parity.case import Case
from omni_kit.parity.compare import Comparison, compare_closely, without_lone_zeros
from omni_kit.parity.precision import loss_of
from omni_kit.parity.process import StepError
from omni_kit.parity.verdict import Verdict
from omni_kit.targets.builder import Slot

_EXACT, _LOW = "float32", "bfloat16"


@dataclass(frozen=True)
class _Tried:
    """What one kernel in one slot gave: an answer, or why there is none."""

    comparison: Comparison
    calls: int = 0
    wrong: str = ""
    unknown: str = ""


def judge_slots(case: Case) -> Verdict:
    """Every declared slot with its counting reference, and with each real kernel that this machine can run."""
    found, wrong, unknown, calls = Comparison(), [], [], 0
    slots = case.slots()
    tried_slots = sum(not slot.idle for slot in slots)
    if any(len(slot.kernels) > 1 for slot in slots):
        case.runs_upstream([_LOW])
    for slot in slots:
        for missing in slot.missing:
            case.note(f"opslots: {slot.name} was not tried with {missing}")
        if slot.idle:
            case.note(f"opslots: {slot.name} ({slot.source}) was not tried: {slot.idle}")
            continue
        for tried in _tries(case, slot):
            found.absorb(tried.comparison)
            calls += tried.calls
            wrong += [tried.wrong] if tried.wrong else []
            unknown += [tried.unknown] if tried.unknown else []
    if unknown and not wrong:
        raise StepError("; ".join(unknown))
    if not slots:
        return Verdict(found, "not applicable: the integration declares no kernel slot", skip=True)
    return Verdict(found, "; ".join([*wrong, *unknown]), found.tolerance, f"{tried_slots} slots, {calls} calls")


def _tries(case: Case, slot: Slot) -> list[_Tried]:
    if not slot.kernels:
        return [_Tried(Comparison(), unknown=f"{_named(slot)}: no kernel can be bound there and none is known")]
    return [_try(case, slot, kernel) for kernel in slot.kernels]


def _try(case: Case, slot: Slot, kernel: str) -> _Tried:
    """The reference is judged as the forward and backward levels judge, a real kernel by what 16 bits cost upstream."""
    counting = kernel == slot.kernels[0]
    where = _named(slot) if counting else f"{_named(slot)} with {kernel}"
    try:
        calls = case.ran_with(slot.name, kernel, _EXACT if counting else _LOW)
    except StepError as error:
        told = f"{where}: {error}"
        return _Tried(Comparison(), wrong=told) if error.blames_candidate else _Tried(Comparison(), unknown=told)
    if not counting:
        return _judge_low(case, slot, kernel, where)
    if not calls:
        return _Tried(Comparison(), wrong=f"{where} is declared and never called")
    return _judge(case, slot, calls, where)


def _judge(case: Case, slot: Slot, calls: list[str], where: str) -> _Tried:
    side, total, reasons = f"candidate/{slot.name}/{slot.kernels[0]}", Comparison(), []
    for what in ("outputs", "gradients"):
        comparison = _compare(case, what, side)
        total.absorb(comparison)
        reasons += [] if comparison.ok else [comparison.reason(what)]
    return _Tried(total, len(calls), f"{where}: {'; '.join(reasons)} (called with {calls[0]})" if reasons else "")


def _judge_low(case: Case, slot: Slot, kernel: str, where: str) -> _Tried:
    side = f"candidate/{slot.name}/{kernel}"
    judged = (("outputs", "logits"), ("gradients", ""))
    losses = [loss_of(case.results, what, _LOW, side, only) for what, only in judged]
    wrong = [
        f"{where}: {loss.name} are off by {loss.candidate:.1e} in {_LOW}, upstream's by {loss.reference:.1e}"
        for loss in losses
        if loss.excess > 1
    ]
    if not wrong:
        figures = ", ".join(f"{loss.name} {loss.candidate:.1e} (upstream {loss.reference:.1e})" for loss in losses)
        case.note(f"{where}: off in {_LOW} by {figures}")
    return _Tried(Comparison(compared=len(losses)), wrong="; ".join(wrong))


def _compare(case: Case, what: str, side: str) -> Comparison:
    reference, candidate, nudged = (case.results(one, what) for one in ("reference", side, "reference/nudged"))
    return compare_closely(without_lone_zeros(reference, candidate), without_lone_zeros(candidate, reference), nudged)


def _named(slot: Slot) -> str:
    return f"{slot.name} ({slot.operation}, {slot.source})"
