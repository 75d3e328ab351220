"""Scenarios of a model without weights: how it is initialised, and what it drops by chance."""

from typing import TYPE_CHECKING

from omni_kit.isolation.worker import StepError
from omni_kit.parity.compare.comparison import listed
from omni_kit.parity.report.report import ScenarioResult

if TYPE_CHECKING:
    from collections.abc import Callable

    from omni_kit.parity.case import Case

FRESH, DROPOUT = "freshly initialised", "dropout"


def beginnings(case: "Case") -> list[ScenarioResult]:
    """Both; upstream's own refusal leaves one out."""
    return [_taken(FRESH, _initialised, case), _taken(DROPOUT, _dropped, case)]


def _taken(name: str, compare: "Callable[[Case], tuple[list[str], int]]", case: "Case") -> ScenarioResult:
    try:
        wrong, compared = compare(case)
    except StepError as error:
        if error.blames_candidate:
            return ScenarioResult(name, "fail", str(error))
        return ScenarioResult(name, "refused", f"upstream refuses it: {error}")
    if not compared:
        return ScenarioResult(name, "refused", "upstream's config has nothing of that")
    return ScenarioResult(name, "fail" if wrong else "pass", listed(wrong) if wrong else "", compared)


def _initialised(case: "Case") -> tuple[list[str], int]:
    from omni_kit.parity.compare.beginning import differently_begun

    reference, candidate, buffers = case.pair.begun()
    return differently_begun(reference, candidate, buffers), len(reference)


def _dropped(case: "Case") -> tuple[list[str], int]:
    """Return modules that upstream has too, and drops another share in."""
    reference, candidate = case.pair.dropped()
    wrong = [
        f"{module or 'the model'} drops {candidate[mode].get(module, [])} instead of {shares.get(module, [])} in {mode}"
        for mode, shares in reference.items()
        for module in sorted({*shares, *candidate[mode]})
        if candidate[mode].get(module, []) != shares.get(module, [])
    ]
    return wrong, sum(map(len, reference.values()))
