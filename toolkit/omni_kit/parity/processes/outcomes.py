"""Outcomes of both sides, and steps that run at most once."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, Protocol, TypeVar, cast

from omni_kit.isolation.worker import StepError
from omni_kit.toys.tensors import Tensors

_T = TypeVar("_T")
_Keeps = TypeVar("_Keeps", bound="StepCache")
REFERENCE, CANDIDATE = "reference", "candidate"
UPDATES = 3
"""Count of the compared updates by an optimizer."""
NUDGED = "reference/nudged"


class StepCache(Protocol):
    """Cache of the results of steps, by name."""

    taken: dict[str, Any]


def once(method: Callable[[_Keeps], _T]) -> Callable[[_Keeps], _T]:
    """Take a step the first time; later calls get the same result or the same error."""

    @wraps(method)
    def remembered(pair: _Keeps) -> _T:
        name = method.__name__
        if name not in pair.taken:
            try:
                pair.taken[name] = method(pair)
            except StepError as error:
                pair.taken[name] = error
        outcome = pair.taken[name]
        if isinstance(outcome, StepError):
            raise outcome
        return cast(_T, outcome)

    return remembered


@dataclass(frozen=True)
class ScenarioOutcome:
    """One way in which both sides have been called.

    Attributes:
        folder: where their answers lie.
        refused: why upstream itself cannot be called so; empty if it can.
        failed: why the candidate cannot.
        wants: why it cannot where it need not: its framework prepares what this way leaves out, or a machine lacks it.
        place: the candidate's own line that failed.
    """

    name: str
    folder: str
    refused: str
    failed: str
    wants: str = ""
    place: str = ""


def paired(refused: Sequence[str], told: Sequence[dict[str, str]]) -> list[ScenarioOutcome]:
    """Pair upstream's refusal of each scenario with the candidate's outcome."""
    both = enumerate(zip(refused, told, strict=True))
    return [
        ScenarioOutcome(one["name"], f"{number:03d}", why, one["error"], one["wants"], one["place"])
        for number, (why, one) in both
    ]


@dataclass(frozen=True)
class Stepped:
    """Results of an optimizer on both sides.

    Attributes:
        reference, candidate, nudged: loss.N, gradient_norm.N, delta.NAME; of upstream, the integration, and upstream
            with every weight moved to the next float32 number.
        lost_upstream, lost: what is another one step after resuming than without it.
    """

    reference: Tensors
    candidate: Tensors
    nudged: Tensors
    lost_upstream: list[str]
    lost: list[str]
