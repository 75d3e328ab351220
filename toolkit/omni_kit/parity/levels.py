"""The levels: each asks the case for what it compares and gives a verdict."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from omni_kit.parity.case import Case
from omni_kit.parity.compare import (
    Comparison,
    compare_closely,
    compare_exactly,
    compare_shapes,
    listed,
    unexercised,
    without_lone_zeros,
)
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
        case.notes.append(_NOT_RECOGNISED)
    if not loaded.ok:
        return _Verdict(loaded, f"loading: {loaded.reason('tensors')}", 0.0)
    exported = compare_exactly(state, case.exported())
    return _Verdict(exported, f"saving: {exported.reason('tensors')}" if not exported.ok else "", 0.0)


def _forward(case: Case) -> _Verdict:
    found = compare_closely(*(case.results(side, "outputs") for side in _SIDES))
    return _Verdict(found, found.reason("outputs"), found.tolerance)


def _backward(case: Case) -> _Verdict:
    reference, candidate, nudged = (case.results(side, "gradients") for side in _SIDES)
    if idle := unexercised(case.ran(), reference):
        case.notes.append(f"the batch leaves {len(idle)} parameters without any gradient upstream: {listed(idle)}")
    found = compare_closely(without_lone_zeros(reference, candidate), without_lone_zeros(candidate, reference), nudged)
    return _Verdict(found, found.reason("gradients"), found.tolerance)


_JUDGES: Mapping[str, Callable[[Case], _Verdict | str]] = {
    "import": _import,
    "keys": _keys,
    "roundtrip": _roundtrip,
    "forward": _forward,
    "backward": _backward,
}
