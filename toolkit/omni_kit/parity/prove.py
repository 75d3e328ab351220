"""Would it have been noticed? Plants faults in the candidate, one after the other, and asks the levels."""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from omni_kit.parity.attention import Calls, attention_differences, load_calls
from omni_kit.parity.case import Case
from omni_kit.parity.compare import unexercised
from omni_kit.parity.faults.processes import PROCESS_FAULTS
from omni_kit.parity.levels import judge
from omni_kit.parity.process import StepError
from omni_kit.parity.report import PROCESS_LEVELS, Planted, Proof
from omni_kit.parity.tensors import load_tensors
from omni_kit.parity.trace import Recording
from omni_kit.targets.builder import Tensors

_NEEDED = ("roundtrip", "forward", "backward")


@dataclass(frozen=True)
class _Fault:
    """What the candidate's process says about a place."""

    number: int
    kind: str
    module: str
    holders: tuple[str, ...]
    what: str
    stored: bool

    def __str__(self) -> str:
        return f"{self.kind} in {self.module or 'the model'} ({self.what})"


def prove(case: Case, levels: Sequence[str] = (), say: Callable[[str], None] = lambda line: None) -> Proof | None:
    """Plants every fault that fits, and reports which were noticed, and blamed on the right module.

    None, with a note, where the integration itself is not at parity: nothing could be told from a fault then.

    Args:
        levels: those that were asked for; on those of several processes, faults are planted between these, too.
    """
    shared = [level for level in levels if level in PROCESS_LEVELS]
    for level in (*_NEEDED, *shared):
        if (found := judge(level, case)).status != "pass":
            case.note(f"nothing was planted: {level} does not pass without a fault either ({found.reason})")
            return None
    planted, idle = [], []
    faults = [_Fault(**{**place, "holders": tuple(place["holders"])}) for place in case.places()]
    for done, fault in enumerate(faults, 1):
        judged = _try(case, fault)
        if judged is None:
            continue
        if judged.idle:
            idle.append(str(fault))
        else:
            planted.append(judged)
        say(f"planted {done} of {len(faults)}: {fault.kind}: {judged}")
    for level in shared:
        planted += filter(None, (_try_between(case, level, kind) for kind in PROCESS_FAULTS))
    return _proof(planted, idle)


def _try_between(case: Case, level: str, kind: str) -> Planted | None:
    """A fault that no module has: it is where it belongs when the level of that kind of sharing fails."""
    name = f"{kind} between the processes of {level}"
    try:
        trained, changed = case.trained_with(level, kind)
    except StepError as error:
        return Planted(name, kind, level, detected_by=("error",), blamed=str(error))
    if not changed:
        return None
    faulty = _WithFault(case, case.where, _Fault(-1, kind, level, (level,), name, stored=False))
    faulty.taken[f"trained {level}"] = trained
    noticed = judge(level, faulty).status == "fail"
    return Planted(name, kind, level, (level,) if noticed else (), level if noticed else "", located=noticed)


def _proof(planted: list[Planted], idle: list[str]) -> Proof:
    return Proof(
        faults=len(planted),
        detected=sum(bool(fault.detected_by) for fault in planted),
        located=sum(fault.located for fault in planted),
        missed=[fault.name for fault in planted if not fault.detected_by],
        mislocated=[f"{f.name}: blamed on {f.blamed or 'nobody'}" for f in planted if f.detected_by and not f.located],
        idle=idle,
        planted=planted,
    )


def _try(case: Case, fault: _Fault) -> Planted | None:
    """None where the place turned out, while running, to be none."""
    out = case.where / "candidate" / "planted"
    try:
        outcome = case.run_planted(fault.number, out)
    except StepError as error:
        if not error.blames_candidate:
            raise
        return Planted(str(fault), fault.kind, fault.module, detected_by=("error",), blamed=str(error))
    try:
        if not outcome["reached"]:
            return None
        if not outcome["changed"]:
            return None if outcome["unfit"] else Planted(str(fault), fault.kind, fault.module, idle=True)
        return _judged(_WithFault(case, out, fault), fault)
    finally:
        shutil.rmtree(out, ignore_errors=True)


def _judged(case: "_WithFault", fault: _Fault) -> Planted:
    failed = []
    for level in _NEEDED if fault.stored else _NEEDED[1:]:
        if judge(level, case).status == "fail":
            failed.append(level)
        if case.divergence is not None:
            break
    if not failed and _unheard(case, fault):
        return Planted(str(fault), fault.kind, fault.module, idle=True)
    blamed = case.divergence.module if case.divergence else case.attention_blamed()
    right = {case.shown(holder) for holder in fault.holders} | {case.shown(fault.module)}
    return Planted(str(fault), fault.kind, fault.module, tuple(failed), blamed, located=blamed in right)


def _unheard(case: "_WithFault", fault: _Fault) -> bool:
    """Nothing that the model answers depends on what is wrong: upstream's has no gradient there, or the modules show
    it and what follows them does not.
    """
    idle = {*unexercised(case.ran(), case.results("reference", "gradients"))}
    inside = [name for name in case.ran() if any(name.startswith(f"{holder}.") for holder in fault.holders)]
    if inside and idle.issuperset(inside):
        return True
    return judge("modules", case).status == "pass" and bool(case.notes)


class _WithFault(Case):
    """A comparison in which the candidate has a fault; all of the reference's is that of the comparison without.

    Args:
        out: where the candidate left what it computed.
    """

    def __init__(self, case: Case, out: Path, fault: _Fault) -> None:
        self.__dict__.update(case.__dict__)
        self.taken = dict(case.taken)
        for name in [name for name in self.taken if name.startswith("compared ")]:
            del self.taken[name]
        self.notes, self.divergence = [], None
        self._without, self._out, self._fault = case, out, fault

    def loaded(self) -> Tensors:
        return load_tensors(self._out / "loaded.safetensors")

    def exported(self) -> Tensors:
        return self.state()

    def traced(self) -> tuple[Recording, Recording]:
        if "traced with fault" not in self.taken:
            self.taken["traced with fault"] = self._without.traced()[0], Recording.load(self._out / "trace")
        return self.taken["traced with fault"]  # type: ignore[no-any-return]

    def replayed(self) -> Recording:
        return Recording.load(self._out / "replay")

    def completed(self) -> Recording:
        return self._without.completed_planted(self._fault.number, self._out / "completed")

    def results(self, side: str, what: str) -> Tensors:
        if side == "candidate":
            return load_tensors(self._out / f"{what}.safetensors")
        return super().results(side, what)

    def attention(self, side: str) -> Calls:
        return load_calls(self._out) if side == "candidate" else super().attention(side)

    def attention_blamed(self) -> str:
        """The module of the first difference in how attention is called."""
        found = attention_differences(self.attention("reference"), self.attention("candidate"))
        return found[0].partition(" attends with ")[0] if found else ""

    def shown(self, module: str) -> str:
        """What a report calls a module: its name, or the nearest one around it that upstream has, too."""
        reference, candidate = self._without.traced()
        known = {call.module for call in reference.calls}
        while module and module not in known:
            module = module.rpartition(".")[0]
        return module or next((call.kind for call in candidate.calls if not call.module), "")
