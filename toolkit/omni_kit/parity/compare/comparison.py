"""The outcome of comparing one group of tensors."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from omni_kit.parity.report.report import Worst
from omni_kit.plurals import counted


class NothingToCompare(Exception):
    """Something to compare is missing; the message names it. The result is neither a pass nor a failure."""


@dataclass
class Comparison:
    """The outcome for one group of tensors.

    Attributes:
        max_rel: the largest relative difference; where tensors are wrong, the largest of those.
        missing: names that only the reference has.
        unexpected: names that only the candidate has.
        worst: every tensor that differs by more than allowed, worst first.
        compared: how many tensors both sides have.
        tolerance: what was allowed for the tensor that gave `max_rel`.
        unsteady: how many of `worst` differ by no more than rounding alone may move them upstream, were there no bound.
    """

    max_abs: float = 0.0
    max_rel: float = 0.0
    missing: list[str] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)
    worst: list[Worst] = field(default_factory=list)
    compared: int = 0
    tolerance: float = 0.0
    unsteady: int = 0

    @property
    def ok(self) -> bool:
        """Return whether something was compared, and nothing differs."""
        return self.compared > 0 and not (self.missing or self.unexpected or self.worst)

    @property
    def proves_nothing(self) -> bool:
        """Return whether something differs, and all of it may be rounding that the model magnifies."""
        return bool(self.worst) and self.unsteady == len(self.worst) and not (self.missing or self.unexpected)

    def absorb(self, other: "Comparison") -> None:
        """Add another group: the largest difference counts, of wrong tensors where there are any."""
        if (bool(other.worst), other.max_rel) >= (bool(self.worst), self.max_rel):
            self.max_rel, self.tolerance = other.max_rel, other.tolerance
        self.compared += other.compared
        self.unsteady += other.unsteady
        self.missing += other.missing
        self.unexpected += other.unexpected
        self.worst = sorted([*self.worst, *other.worst], key=lambda worst: -worst.max_rel)
        self.max_abs = max(self.max_abs, other.max_abs)

    def under(self, group: str) -> "Comparison":
        """Return a comparison with the tensors named as part of a group."""
        return replace(
            self,
            missing=[f"{group}: {name}" for name in self.missing],
            unexpected=[f"{group}: {name}" for name in self.unexpected],
            worst=[replace(worst, name=f"{group}: {worst.name}") for worst in self.worst],
        )

    def reason(self, what: str) -> str:
        """Return one line that names what differs, each called by the noun; empty when nothing does."""
        parts = []
        if self.missing:
            parts.append(f"{counted(self.missing, what)} missing: {listed(self.missing)}")
        if self.unexpected:
            parts.append(
                f"{counted(self.unexpected, what)} that the reference does not have: {listed(self.unexpected)}"
            )
        if self.worst:
            named = [f"{worst.name} ({worst.why})" if worst.why else worst.name for worst in self.worst]
            parts.append(f"{len(self.worst)} of {counted(self.compared, what)} differ: {listed(named)}")
        if not self.compared and not parts:
            parts.append(f"no {what} to compare")
        return "; ".join(parts)


def listed(names: Sequence[str], limit: int = 4) -> str:
    """Return the first names, and how many more there are."""
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more


def compare_shapes(reference: Mapping[str, Sequence[int]], candidate: Mapping[str, Sequence[int]]) -> Comparison:
    """Return names and shapes; a tensor of another shape is among `worst`."""
    result = names_compared(list(reference), list(candidate))
    for name in (name for name in reference if name in candidate):
        if list(reference[name]) != list(candidate[name]):
            why = f"{list(candidate[name])} instead of {list(reference[name])}"
            result.worst.append(Worst(name, math.inf, math.inf, why))
    return result


def names_compared(reference: list[str], candidate: list[str]) -> Comparison:
    """Compare two lists of names: the shared ones, and those of one side alone."""
    here, there = set(reference), set(candidate)
    missing = [name for name in reference if name not in there]
    unexpected = [name for name in candidate if name not in here]
    return Comparison(missing=missing, unexpected=unexpected, compared=len(here & there))
