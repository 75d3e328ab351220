"""The core of timing: contenders next to a baseline, round by round, so that what drifts hits all of them alike.

Knows nothing of kernels, processes or devices: a contender is whatever its bench can run.
"""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

C = TypeVar("C")
_Bench = TypeVar("_Bench", contravariant=True)
_BETWEEN = 4  # contenders between two runs of the baseline
ALIKE = 0.005  # of the baseline: a smaller difference is none, however quiet the machine is


@dataclass(frozen=True)
class Sample:
    """Some steps in a row of one contender: milliseconds of each, and the peak of memory in GB."""

    ms: tuple[float, ...]
    gb: float

    @property
    def typical(self) -> float:
        """The lower quartile: what disturbs a step only ever makes it longer."""
        return self._quartiles[0]

    @property
    def spread(self) -> float:
        """The distance between the quartiles: how far `typical` may be from that of other steps."""
        return self._quartiles[2] - self._quartiles[0]

    @property
    def _quartiles(self) -> list[float]:
        return statistics.quantiles(self.ms, n=4, method="inclusive") if len(self.ms) > 1 else [self.ms[0]] * 3


class Stopwatch(Protocol):
    """Takes the time of steps on some device."""

    def start(self) -> None:
        """Reset the times."""

    def lap(self, step: Callable[[], None]) -> None:
        """Times one step."""

    def read(self) -> tuple[list[float], float]:
        """Milliseconds of each lap, and the peak of memory in GB, since `start`."""


class Broken(Exception):
    """A contender without a time: it raised, ran out of memory, or ended its process."""


class Bench(Protocol[_Bench]):
    """The place where contenders run."""

    def sample(self, contender: _Bench) -> Sample:
        """Return some steps of one.

        Raises:
            Broken: why there are none.
        """


@dataclass(frozen=True)
class Measured:
    """The measurements of a contender.

    Attributes:
        ms: of a step; what the machine drifted is taken out.
        gb: the peak of memory.
        against: ms against the baseline's in the same rounds; below zero is faster.
    """

    ms: float
    gb: float
    against: float


@dataclass(frozen=True)
class Rounds(Generic[C]):
    """The results of some rounds.

    Attributes:
        baseline: what was measured of it.
        noise: in ms; what differs by less does not differ.
        measured: by name, those that ran in every round.
        broken: by name, why the others did not.
    """

    baseline: Measured
    noise: float
    measured: Mapping[str, Measured]
    broken: Mapping[str, str]


def timed(step: Callable[[], None], watch: Stopwatch, *, warm: int, steps: int) -> Sample:
    """Run `warm` steps that do not count, and then `steps` that do; the memory of the last ones counts."""
    for _ in range(warm):
        step()
    watch.start()
    for _ in range(steps):
        watch.lap(step)
    ms, gb = watch.read()
    return Sample(tuple(ms), gb)


def interleaved(
    bench: Bench[C],
    baseline: C,
    contenders: Mapping[str, C],
    *,
    rounds: int,
    zero: float | None = None,
    closely: bool = False,
) -> Rounds[C]:
    """Each round takes every contender, a few at a time with the baseline before and after them.

    Args:
        rounds: how many at most; a contender gets no further one once the whole interval of its difference is more
            than half a percent of the baseline from it, or less.
        closely: all get every round, whatever their intervals say.
        zero: the ms of the baseline from earlier rounds, so that figures of all rounds can stand in one table.

    Raises:
        Broken: the baseline itself gives no time.
    """
    own: list[Sample] = []
    differences: dict[str, list[float]] = {name: [] for name in contenders}
    peaks: dict[str, float] = dict.fromkeys(contenders, 0.0)
    broken: dict[str, str] = {}
    told: set[str] = set()
    for _ in range(rounds):
        left = [name for name in contenders if name not in broken and name not in told]
        if contenders and not left:
            break
        own.append(bench.sample(baseline))
        for few in _in_groups(left):
            samples = {name: _tried(bench, contenders[name], broken, name) for name in few}
            own.append(bench.sample(baseline))
            before, after = own[-2], own[-1]
            middle = (before.typical + after.typical) / 2
            drift = abs(after.typical - before.typical) / 2
            for name, sample in samples.items():
                if sample is not None:
                    differences[name].append(sample.typical - middle)
                    peaks[name] = max(peaks[name], sample.gb)
                    doubt = drift + max(sample.spread, before.spread, after.spread) / 2
                    if not closely and _decided(sample.typical - middle, doubt, middle):
                        told.add(name)
    level = statistics.median(sample.typical for sample in own) if zero is None else zero
    kept = {name: found for name, found in differences.items() if name not in broken}
    measured = {name: Measured(level + _median(found), peaks[name], _median(found)) for name, found in kept.items()}
    return Rounds(Measured(level, max(sample.gb for sample in own), 0.0), _noise(own, kept), measured, broken)


def _decided(difference: float, doubt: float, level: float) -> bool:
    """Return whether a difference is clear, or clearly none."""
    return abs(difference) - doubt > ALIKE * level or abs(difference) + doubt < ALIKE * level


def _in_groups(names: list[str]) -> list[list[str]]:
    return [names[start : start + _BETWEEN] for start in range(0, len(names), _BETWEEN)]


def _noise(own: Sequence[Sample], differences: Mapping[str, Sequence[float]]) -> float:
    """Return the spread of one comparison from round to round if there were several, else of the baseline."""
    apart = [abs(one - _median(found)) for found in differences.values() if len(found) > 1 for one in found]
    if not apart:
        level = [sample.typical for sample in own]
        apart = [abs(one - _median(level)) for one in level]
    return 2 * _median(apart)


def _tried(bench: Bench[C], contender: C, broken: dict[str, str], name: str) -> Sample | None:
    try:
        return bench.sample(contender)
    except Broken as error:
        broken[name] = str(error)
        return None


def _median(values: Sequence[float]) -> float:
    return statistics.median(values)
