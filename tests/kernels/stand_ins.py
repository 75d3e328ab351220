"""A bench of kernels that cost what they are said to cost, on a machine that drifts as it is told; and its clock."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from omni_kit.kernels.timing import Broken, Sample

Cost = tuple[float, float]
"""Milliseconds and GB."""


@dataclass
class StandIns:
    """Slot -> kernel -> what it adds to a step of `base`.

    Attributes:
        drift: what every sample makes all later ones slower by, in ms.
        jitter: added to every step in turn.
        crashing: kernels whose process ends.
        synergy: what two choices together take beside what each takes alone.
        asked: every choice that was timed, in order.
    """

    costs: Mapping[str, Mapping[str, Cost]]
    base: Cost = (100.0, 10.0)
    drift: float = 0.0
    jitter: tuple[float, ...] = (0.0,)
    crashing: frozenset[str] = frozenset()
    synergy: Mapping[frozenset[str], float] = field(default_factory=dict)
    calls: list[dict[str, str]] = field(default_factory=list)

    def sample(self, contender: Mapping[str, str]) -> Sample:
        """Four steps of a choice.

        Raises:
            Broken: it has a kernel that crashes.
        """
        self.calls.append(dict(contender))
        if crashed := self.crashing.intersection(contender.values()):
            raise Broken(f"{min(crashed)} ended its process")
        costs = [self.costs[slot][kernel] for slot, kernel in contender.items()]
        ms = self.base[0] + sum(cost[0] for cost in costs) + self.drift * len(self.calls)
        ms += sum(extra for both, extra in self.synergy.items() if both <= set(contender.values()))
        steps = tuple(ms + self.jitter[(len(self.calls) * 4 + step) % len(self.jitter)] for step in range(4))
        return Sample(steps, self.base[1] + sum(cost[1] for cost in costs))

    def clock(self) -> float:
        """A second a sample."""
        return float(len(self.calls))
