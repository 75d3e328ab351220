"""The levels: each asks the case for what it compares and gives a verdict."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

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
from omni_kit.parity.precision import DTYPES, RATIO, Loss, Replays, total_loss
from omni_kit.parity.process import StepError
from omni_kit.parity.report import LevelResult

_WORST_SHOWN = 20
_NOT_RECOGNISED = (
    "the loader knows no place for some tensors of this checkpoint, and filled others at random instead; "
    "--layout memory compares on a checkpoint with the names that upstream's model itself has"
)
_SIDES = ("reference", "candidate", "reference/nudged")


@dataclass(frozen=True)
class _Verdict:
    comparison: Comparison
    reason: str
    tolerance: float | None = None


def judge(level: str, case: Case) -> LevelResult:
    """Runs one level.

    A step that raised in the candidate is the integration's fault: fail. A step that raised in the reference, died or
    hung says nothing about the integration: error. A step that an earlier level already reported: skip.
    """
    started = time.monotonic()
    if level not in _JUDGES:
        return LevelResult(level, "skip", "this version of omni-kit does not run this level on this target")
    try:
        result = _result(level, _JUDGES[level](case))
    except StepError as error:
        result = _failed(level, error)
    return replace(result, seconds=round(time.monotonic() - started, 3))


def _result(level: str, verdict: _Verdict | str) -> LevelResult:
    if isinstance(verdict, str):
        return LevelResult(level, "pass", verdict)
    found = verdict.comparison
    return LevelResult(
        level,
        "pass" if not verdict.reason else "fail",
        verdict.reason,
        max_abs=found.max_abs,
        max_rel=found.max_rel,
        tolerance=verdict.tolerance,
        worst=tuple(found.worst[:_WORST_SHOWN]),
    )


def _failed(level: str, error: StepError) -> LevelResult:
    if error.reported:
        return LevelResult(level, "skip", f"not run, because: {error}")
    error.reported = True
    return LevelResult(level, "fail" if error.blames_candidate else "error", str(error))


def _import(case: Case) -> str:
    facts = case.imported()
    return f"{facts['library']} {facts['version']}"


def _keys(case: Case) -> _Verdict:
    expected = {name: list(tensor.shape) for name, tensor in case.state().items()}
    found = compare_shapes(expected, case.shapes())
    return _Verdict(found, found.reason("tensors"))


def _roundtrip(case: Case) -> _Verdict:
    """Upstream's checkpoint through the integration's loader, then its export through upstream's loader."""
    state = case.state()
    loaded = compare_exactly(state, case.loaded())
    if any("never loaded" in worst.why for worst in loaded.worst):
        case.note(_NOT_RECOGNISED)
    if not loaded.ok:
        return _Verdict(loaded, f"loading: {loaded.reason('tensors')}", 0.0)
    exported = compare_exactly(state, case.exported())
    return _Verdict(exported, f"saving: {exported.reason('tensors')}" if not exported.ok else "", 0.0)


def _forward(case: Case) -> _Verdict:
    found = _outputs(case)
    if not found.ok:
        _locate(case)
    return _Verdict(found, found.reason("outputs"), found.tolerance)


def _backward(case: Case) -> _Verdict:
    if idle := unexercised(case.ran(), case.results("reference", "gradients")):
        case.note(f"the batch leaves {len(idle)} parameters without any gradient upstream: {listed(idle)}")
    found = _gradients(case)
    if not found.ok:
        _locate(case)
    return _Verdict(found, found.reason("gradients"), found.tolerance)


def _modules(case: Case) -> _Verdict:
    """No module adds error of its own; where one does but no output or gradient shows it, that is only said."""
    right = _outputs(case).ok and _gradients(case).ok
    blame = _blame(case)
    found = Comparison(compared=len(case.traced()[1].calls), max_rel=blame.added if blame else 0.0)
    if blame is None:
        return _Verdict(found, "", FLOAT32_TOLERANCE)
    where = f"{blame.call.module or blame.call.kind} adds {blame.added:.1e} to {blame.what}"
    if right:
        case.note(f"{where}; no output and no gradient of the model shows it")
        return _Verdict(found, "", FLOAT32_TOLERANCE)
    _locate(case)
    return _Verdict(found, where, FLOAT32_TOLERANCE)


def _dtype(case: Case) -> _Verdict:
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
    return _Verdict(found, "; ".join(reasons), RATIO)


def _losses(case: Case, dtype: str) -> list[Loss]:
    """Modules first, in their order; then logits and gradients."""
    reference, candidate = (case.replayed_as(side, dtype) for side in ("reference", "candidate"))
    modules = Replays(case.traced()[0], reference, candidate, case.inputs()["attention_mask"]).losses(dtype)
    return [*modules, _total(case, "outputs", dtype, only="logits"), _total(case, "gradients", dtype)]


def _total(case: Case, what: str, dtype: str, only: str = "") -> Loss:
    exact = case.results("reference", what)
    reference, candidate = (case.results(f"{side}/{dtype}", what) for side in ("reference", "candidate"))
    kept = {name: tensor for name, tensor in exact.items() if only in ("", name)}
    return total_loss(only or what, kept, reference, candidate, dtype)


def _outputs(case: Case) -> Comparison:
    return compare_closely(*(case.results(side, "outputs") for side in _SIDES))


def _gradients(case: Case) -> Comparison:
    reference, candidate, nudged = (case.results(side, "gradients") for side in _SIDES)
    return compare_closely(without_lone_zeros(reference, candidate), without_lone_zeros(candidate, reference), nudged)


def _locate(case: Case) -> None:
    """Names the first module that adds error, where there is one, as the report's first divergence."""
    if case.divergence is None and (blame := _blame(case)) is not None:
        case.divergence = divergence(blame, Compared(*case.traced(), case.inputs()["attention_mask"]))


def _blame(case: Case) -> Blame | None:
    mask = case.inputs()["attention_mask"]
    reference, candidate = case.traced()
    free, replay = Compared(reference, candidate, mask), Compared(reference, case.replayed(), mask)
    gradients = _gradients(case)
    wrong = [*gradients.missing, *(worst.name for worst in gradients.worst)]
    if (forward := first_forward(replay, free)) is not None or not wrong:
        return forward
    return first_backward(free, max(FLOAT32_TOLERANCE, gradients.tolerance)) or owner(free, wrong)


_JUDGES: Mapping[str, Callable[[Case], _Verdict | str]] = {
    "import": _import,
    "keys": _keys,
    "roundtrip": _roundtrip,
    "forward": _forward,
    "backward": _backward,
    "modules": _modules,
    "dtype": _dtype,
}
