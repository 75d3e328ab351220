"""The level `opslots`: each kernel slot is filled alone, must be called, and must change nothing."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from omni_kit.isolation.worker import StepError
from omni_kit.parity.compare.comparison import Comparison
from omni_kit.parity.levels.backward import Backward
from omni_kit.parity.levels.forward import Forward
from omni_kit.parity.levels.level import Level, LevelVerdict
from omni_kit.parity.levels.variants import varied
from omni_kit.plurals import counted
from omni_kit.targets.sides import Ability, Slot
from omni_kit.toys.configs.variants import Extent

if TYPE_CHECKING:
    from omni_kit.parity.case import Case

_EXACT, _LOW = "float32", "bfloat16"
_NEVER_CALLED = "is declared and never called"  # what another config can leave out


@dataclass(frozen=True)
class _Tried:
    """Result of one kernel in one slot: an output, or why there is none."""

    comparison: Comparison
    calls: int = 0
    wrong: str = ""
    unknown: str = ""


class Opslots(Level):
    """Every declared slot with its counting reference, and with each real kernel that this machine can run."""

    name = "opslots"
    says = "every kernel slot is called, and its kernels keep the results"
    needs = frozenset({Ability.slots})

    def judge(self, case: "Case") -> LevelVerdict:
        """See `Level.judge`."""
        slots = case.pair.slots()
        if not slots:
            if lost := case.pair.lost_arguments():
                return LevelVerdict(Comparison(), "; ".join(lost))
            return LevelVerdict(Comparison(), "not applicable: the integration declares no kernel slot", skip=True)
        if any(len(slot.kernels) > 1 for slot in slots):
            case.pair.runs_upstream([_LOW])
        _note_untried(case, slots)
        found = Comparison()
        if not case.right():  # every slot would fail with it
            wrong = [_plain(case, found), *case.pair.lost_arguments()]
            return LevelVerdict(found, "; ".join(wrong), found.tolerance)
        called = [slot for slot in slots if not slot.idle]
        tried = [one for slot in called for one in _tries(case, slot)]
        wrong = [*(one.wrong for one in tried if one.wrong), *case.pair.lost_arguments()]
        unknown = [one.unknown for one in tried if one.unknown]
        if unknown and not wrong:
            raise StepError("; ".join(unknown))
        for one in tried:
            found.absorb(one.comparison)
        said = f"{counted(called, 'slot')}, {counted(sum(one.calls for one in tried), 'call')}"
        if not wrong and case.pair.given is None:
            results = [varied(name, pair, _kept, found) for name, pair in case.pair.variants(Extent.numbers)]
            results += [varied(name, pair, _lost, found) for name, pair in case.pair.variants(Extent.switches)]
            wrong = [f"{one.name}: {one.reason}" for one in results if one.status == "fail"]
            said += f", {counted(sum(one.status == 'pass' for one in results), 'other config')}"
        return LevelVerdict(found, "; ".join([*wrong, *unknown]), found.tolerance, said)


def _kept(case: "Case", compared: Comparison) -> str:
    """Fill each slot with its counting reference, in a model of another config; return why the first fails."""
    if plain := _plain(case, compared):
        return plain
    for slot in case.pair.slots():
        if not slot.idle and slot.kernels:
            one = _try(case, slot, slot.kernels[0])
            compared.absorb(one.comparison)
            if one.wrong and not one.wrong.endswith(_NEVER_CALLED):
                return one.wrong
    return ""


def _plain(case: "Case", compared: Comparison) -> str:
    """Return what is wrong without a kernel, which is not a slot's difference; empty if nothing is."""
    for level in (Forward(), *([Backward()] if Ability.gradient in case.offers else [])):
        verdict = level.judge(case)
        if verdict.reason:
            compared.absorb(verdict.comparison)
            return f"without a kernel, {verdict.reason}{f', at {verdict.place}' if verdict.place else ''}"
    return ""


def _lost(case: "Case", compared: Comparison) -> str:
    """Return which arguments of a step get lost, and what routers do wrong, in a model of another config."""
    lost = case.pair.lost_arguments()
    compared.compared += 1
    return "; ".join(lost)


def _note_untried(case: "Case", slots: list[Slot]) -> None:
    for slot in slots:
        for missing in slot.missing:
            case.note(f"opslots: {slot.name} was not tried with {missing}")
        if slot.idle:
            case.note(f"opslots: {slot.name} ({slot.source}) was not tried: {slot.idle}")


def _tries(case: "Case", slot: Slot) -> list[_Tried]:
    if not slot.kernels:
        return [_Tried(Comparison(), unknown=f"{_named(slot)}: no kernel can be bound there and none is known")]
    return [_try(case, slot, kernel) for kernel in slot.kernels]


def _try(case: "Case", slot: Slot, kernel: str) -> _Tried:
    """The reference is judged as the forward and backward levels judge, a real kernel by what 16 bits cost upstream."""
    counting = kernel == slot.kernels[0]
    where = _named(slot) if counting else f"{_named(slot)} with {kernel}"
    try:
        calls = case.pair.ran_with(slot.name, kernel, _EXACT if counting else _LOW)
    except StepError as error:
        told = f"{where}: {error}"
        return _Tried(Comparison(), wrong=told) if error.blames_candidate else _Tried(Comparison(), unknown=told)
    if not counting:
        return _judge_low(case, slot, kernel, where)
    if not calls:
        return _Tried(Comparison(), wrong=f"{where} {_NEVER_CALLED}")
    return _judge(case, slot, calls, where)


def _judge(case: "Case", slot: Slot, calls: list[str], where: str) -> _Tried:
    side, total, reasons = f"candidate/{slot.name}/{slot.kernels[0]}", Comparison(), []
    judges = [("outputs", case.compared_outputs)]
    if Ability.gradient in case.offers:
        judges.append(("gradients", case.compared_gradients))
    for what, compared in judges:
        comparison = compared(case.pair.results_of(side, what))
        total.absorb(comparison)
        reasons += [] if comparison.ok else [comparison.reason(what.removesuffix("s"))]
    return _Tried(total, len(calls), f"{where}: {'; '.join(reasons)} (called with {calls[0]})" if reasons else "")


def _judge_low(case: "Case", slot: Slot, kernel: str, where: str) -> _Tried:
    from omni_kit.parity.compare.precision import judged_losses

    side = f"candidate/{slot.name}/{kernel}"
    losses = judged_losses(case.pair.results_of, case.batch_builder, _LOW, side, case.offers)
    wrong = [
        f"{where}: {loss.name} are off by {loss.candidate:.1e} in {_LOW}, upstream's by {loss.reference:.1e}"
        for loss in losses
        if loss.excess > 1
    ]
    if not wrong:
        figures = ", ".join(f"{loss.name} {loss.candidate:.1e} (upstream {loss.reference:.1e})" for loss in losses)
        case.note(f"{where}: off in {_LOW} by {figures}")
    return _Tried(Comparison(compared=len(losses)), wrong="; ".join(wrong))


def _named(slot: Slot) -> str:
    return f"{slot.name} ({slot.operation}, {slot.source})"
