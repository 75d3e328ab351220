"""The levels: each asks the case for what it compares and gives a verdict."""

import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from omni_kit.parity.attention import attention_differences
from omni_kit.parity.case import Case
from omni_kit.parity.compare import (
    FLOAT32_TOLERANCE,
    Comparison,
    compare_closely,
    compare_exactly,
    compare_shapes,
    listed,
    unexercised,
    without_lone_zeros,
)
from omni_kit.parity.modules import Blame, Compared, divergence, first_backward, first_forward, owner
from omni_kit.parity.precision import DTYPES, RATIO, Loss, Replays, loss_of
from omni_kit.parity.process import StepError
from omni_kit.parity.process_levels import judge_processes
from omni_kit.parity.report import PROCESS_LEVELS, LevelResult
from omni_kit.parity.slot_level import judge_slots
from omni_kit.parity.verdict import Verdict
from omni_kit.parity.withheld import giver, lacking

_NOT_RECOGNISED = (
    "the loader knows no place for some tensors of this checkpoint, and filled others at random instead; "
    "--layout memory compares on a checkpoint with the names that upstream's model itself has"
)
_SIDES = ("reference", "candidate", "reference/nudged")


def judge(level: str, case: Case) -> LevelResult:
    """Runs one level.

    A step that raised in the candidate is the integration's fault: fail. A step that raised in the reference, died or
    hung says nothing about the integration: error. A step that an earlier level already reported: skip.
    """
    started = time.monotonic()
    try:
        result = _JUDGES[level](case).result(level)
    except StepError as error:
        result = _failed(level, error)
    return replace(result, seconds=round(time.monotonic() - started, 3))


def _failed(level: str, error: StepError) -> LevelResult:
    if error.reported:
        return LevelResult(level, "skip", f"not run, because: {error}")
    error.reported = True
    return LevelResult(level, "fail" if error.blames_candidate else "error", str(error))


def _import(case: Case) -> Verdict:
    facts = case.imported()
    return Verdict(Comparison(), said=f"{facts['library']} {facts['version']}")


def _keys(case: Case) -> Verdict:
    expected = {name: list(tensor.shape) for name, tensor in case.state().items()}
    found = compare_shapes(expected, case.shapes())
    return Verdict(found, found.reason("tensors"))


def _roundtrip(case: Case) -> Verdict:
    """Upstream's checkpoint through the integration's loader, then its export through upstream's loader."""
    state = case.state()
    loaded = compare_exactly(state, case.loaded())
    if any("never loaded" in worst.why for worst in loaded.worst):
        case.note(_NOT_RECOGNISED)
    if not loaded.ok:
        return Verdict(loaded, f"loading: {loaded.reason('tensors')}", 0.0)
    exported = compare_exactly(state, case.exported())
    return Verdict(exported, f"saving: {exported.reason('tensors')}" if not exported.ok else "", 0.0)


def _forward(case: Case) -> Verdict:
    """Outputs within rounding, and attention called as upstream calls it, which the outputs of a CPU may not show."""
    found = _outputs(case)
    if not found.ok:
        _locate(case)
    attention = attention_differences(case.attention("reference"), case.attention("candidate"))
    reasons = [*filter(None, [found.reason("outputs")]), *attention[:1]]
    if len(attention) > 1:
        reasons[-1] += f", and {len(attention) - 1} more"
    return Verdict(found, "; ".join(reasons), found.tolerance)


def _backward(case: Case) -> Verdict:
    if idle := unexercised(case.ran(), case.results("reference", "gradients")):
        case.note(f"the batch leaves {len(idle)} parameters without any gradient upstream: {listed(idle)}")
    found = _gradients(case)
    if not found.ok:
        _locate(case)
    return Verdict(found, found.reason("gradients"), found.tolerance)


def _modules(case: Case) -> Verdict:
    """No module adds error of its own; where one does but no output or gradient shows it, that is only said."""
    right = _outputs(case).ok and _gradients(case).ok
    blame = _blame(case)
    found = Comparison(compared=len(case.traced()[1].calls), max_rel=blame.added if blame else 0.0)
    if blame is None:
        return Verdict(found, "", FLOAT32_TOLERANCE)
    where = f"{blame.call.module or blame.call.kind} adds {blame.added:.1e} to {blame.what}"
    if right:
        case.note(f"{where}; no output and no gradient of the model shows it")
        return Verdict(found, "", FLOAT32_TOLERANCE)
    _locate(case)
    return Verdict(found, where, FLOAT32_TOLERANCE)


def _dtype(case: Case) -> Verdict:
    """In each low dtype, the candidate is hardly further from float32 than upstream: as a whole, and by module."""
    found = Comparison(tolerance=RATIO)
    reasons = []
    for dtype in case.runs_upstream(DTYPES):
        losses = _losses(case, dtype)
        found.compared += len(losses)
        found.max_rel = max(found.max_rel, RATIO * max(loss.excess for loss in losses))
        if excessive := next((loss for loss in losses if loss.excess > 1), None):
            figures = f"{excessive.candidate:.1e}, upstream {excessive.reference:.1e}"
            reasons.append(f"{dtype}: {excessive.name or 'the model'} is too far from float32 ({figures})")
    return Verdict(found, "; ".join(reasons), RATIO)


def _losses(case: Case, dtype: str) -> list[Loss]:
    """Modules first, in their order; then logits and gradients."""
    reference, candidate = (case.replayed_as(side, dtype) for side in ("reference", "candidate"))
    modules = Replays(case.traced()[0], reference, candidate, case.mask()).losses(dtype)
    side = f"candidate/{dtype}"
    answers = [name for name in case.results("reference", "outputs") if name == "logits" or name.startswith("sample.")]
    totals = [loss_of(case.results, "outputs", dtype, side, only=answer) for answer in answers]
    return [*modules, *totals, loss_of(case.results, "gradients", dtype, side)]


def _processes(level: str) -> Callable[[Case], Verdict]:
    return lambda case: judge_processes(level, case)


def _outputs(case: Case) -> Comparison:
    return case.compared("outputs", lambda: _compare_outputs(case))


def _compare_outputs(case: Case) -> Comparison:
    """What the candidate answers beyond upstream has nothing to be compared with."""
    reference, candidate, nudged = (case.results(side, "outputs") for side in _SIDES)
    return compare_closely(reference, {name: candidate[name] for name in candidate if name in reference}, nudged)


def _gradients(case: Case) -> Comparison:
    return case.compared("gradients", lambda: _compare_gradients(case))


def _compare_gradients(case: Case) -> Comparison:
    reference, candidate, nudged = (case.results(side, "gradients") for side in _SIDES)
    return compare_closely(without_lone_zeros(reference, candidate), without_lone_zeros(candidate, reference), nudged)


def _locate(case: Case) -> None:
    """Names the first module that adds error, where there is one, as the report's first divergence."""
    if case.divergence is None and (blame := _blame(case)) is not None:
        case.divergence = divergence(blame, Compared(*case.traced(), case.mask()))


def _blame(case: Case) -> Blame | None:
    mask = case.mask()
    reference, candidate = case.traced()
    free, replay = Compared(reference, candidate, mask), Compared(reference, case.replayed(), mask)
    gradients = _gradients(case)
    wrong = [*gradients.missing, *(worst.name for worst in gradients.worst)]
    if (forward := first_forward(replay, free)) is not None:
        return _or_giver(case, forward, replay, free)
    if not _outputs(case).ok:
        return Blame(candidate.calls[0], 1.0, "what it returns, and in nothing that its parts return")
    if not wrong:
        return None
    sound = case.results("reference", "gradients").keys() - set(wrong)
    return first_backward(free, max(FLOAT32_TOLERANCE, gradients.tolerance), sound) or owner(free, wrong)


def _or_giver(case: Case, blame: Blame, replay: Compared, free: Compared) -> Blame:
    """Who did not hand on what the blamed module needs, where that is all that is wrong with it."""
    if not lacking(replay, blame.call):
        return blame
    try:
        return giver(replay, blame, Compared(free.reference, case.completed(), case.mask()), free)
    except StepError:  # it does not take what it lacks
        return blame


_JUDGES: Mapping[str, Callable[[Case], Verdict]] = {
    "import": _import,
    "keys": _keys,
    "roundtrip": _roundtrip,
    "forward": _forward,
    "backward": _backward,
    "modules": _modules,
    "dtype": _dtype,
    "opslots": judge_slots,
    **{level: _processes(level) for level in PROCESS_LEVELS},
}
