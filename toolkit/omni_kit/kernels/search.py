"""The search: one slot at a time from the default, then greedily, then the best few together.

It stops where nothing that is left to try gained more than noise, at the latest after `MOST` choices or the seconds
that it was given. Slots that make no difference beyond noise keep the default.
"""

import itertools
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from omni_kit.counting import counted
from omni_kit.kernels.pareto import pareto
from omni_kit.kernels.timing import Bench, Measured, Rounds, interleaved

Choice = Mapping[str, str]
MOST = 48
_TOGETHER = 3  # slots
_BEST = 3  # kernels of each of them
_AT_ONCE = 8
_FINALISTS = 3  # that are measured again beside the default
_NOISE_SHARE = 0.005  # of a step: what is closer is not told apart, however quiet the machine was
_NOISE_GB = 0.05
DEFAULT = "default"


@dataclass(frozen=True)
class Found:
    """The result of a search.

    Attributes:
        choices: name -> what was chosen, the default among them.
        measured: name -> what came of it.
        broken: name -> why it gave no time.
        noise: in ms.
        matters: the slots in which a kernel made a difference.
        recommended: name of the choice.
        stopped: why the search ended.
        seconds: how long it took.
    """

    choices: Mapping[str, Choice]
    measured: Mapping[str, Measured]
    broken: Mapping[str, str]
    noise: float
    matters: frozenset[str]
    recommended: str
    stopped: str
    seconds: float
    front: Sequence[str] = field(default_factory=list)

    def finalists(self, limit: float | None) -> list[str]:
        """Return the choices to measure again: the recommended one, then the fastest others within `limit` GB."""
        fitting = [name for name, one in self.measured.items() if limit is None or one.gb <= limit]
        ranked = sorted(fitting, key=lambda name: self.measured[name].ms)
        names = dict.fromkeys([self.recommended, *ranked])
        return [name for name in names if name != DEFAULT][:_FINALISTS]

    def confirmed(self, last: Rounds[Choice], limit: float | None) -> "Found":
        """Return the search with the figures of its last rounds, and the recommendation that follows from these.

        Only choices of these rounds compete, all measured side by side. One that gains no more than noise over the
        default loses to it, unless the default does not fit and the choice is smaller.
        """
        again = {DEFAULT: last.baseline, **{name: one for name, one in last.measured.items() if name in self.choices}}
        noise = max(last.noise, _NOISE_SHARE * last.baseline.ms)
        measured = {**self.measured, **again}
        changes = {name: _changes(self.choices[name], self.choices[DEFAULT]) for name in again}
        best = _recommended(again, changes, limit, noise)
        return replace(self, measured=measured, noise=noise, recommended=best, front=pareto(measured))


@dataclass
class Search:
    """Looks for the fastest choice that fits into memory.

    Attributes:
        bench: where choices are timed.
        default: slot -> kernel, from which it starts.
        kernels: slot -> what may be chosen there, all of it proven.
        limit: GB that a choice may take; given what the default takes. None knows no limit.
        rounds: of each comparison.
        seconds: after which it tries nothing new.
    """

    bench: Bench[Choice]
    default: Choice
    kernels: Mapping[str, Sequence[str]]
    limit: Callable[[float], float | None] = lambda gb: None
    rounds: int = 3
    seconds: float = 240.0
    clock: Callable[[], float] = time.monotonic
    say: Callable[[str], None] = lambda line: None
    _choices: dict[str, Choice] = field(default_factory=dict)
    _measured: dict[str, Measured] = field(default_factory=dict)
    _broken: dict[str, str] = field(default_factory=dict)
    _noise: float = 0.0
    _zero: float | None = None
    _begun: float = 0.0

    def run(self) -> Found:
        """Searches.

        Raises:
            Broken: the default itself gives no time.
        """
        self._begun = self.clock()
        self._choices[DEFAULT] = dict(self.default)
        singles = {(slot, kernel): self._named({**self.default, slot: kernel}) for slot, kernel in self._others()}
        self._time(singles.values())
        matters = frozenset(slot for slot in self.kernels if self._matters(slot, singles))
        stopped = "no slot makes a difference beyond noise"
        if matters:
            stopped = self._greedy(matters)
            self._time(self._together(matters, singles))
        if self._spent():
            stopped = f"stopped after {counted(self._measured, 'choice')} and {self.clock() - self._begun:.0f} s"
        return Found(
            dict(self._choices),
            dict(self._measured),
            dict(self._broken),
            self._noise,
            matters,
            self._recommended(),
            stopped,
            self.clock() - self._begun,
            pareto(self._measured),
        )

    def _others(self) -> list[tuple[str, str]]:
        return [
            (slot, kernel) for slot, names in self.kernels.items() for kernel in names if kernel != self.default[slot]
        ]

    def _named(self, choice: Choice) -> str:
        """The name of a choice: what it has other than the default."""
        other = [f"{slot}={kernel}" for slot, kernel in choice.items() if kernel != self.default[slot]]
        name = ", ".join(other) or DEFAULT
        self._choices.setdefault(name, dict(choice))
        return name

    def _time(self, names: Iterable[str]) -> None:
        """Times those that were not yet; a few in each comparison, so that its rounds lie close together."""
        new = [name for name in dict.fromkeys(names) if name not in self._measured and name not in self._broken]
        for start in range(0, max(len(new), 0 if self._measured else 1), _AT_ONCE):
            if self._spent():
                return
            some = new[start : start + _AT_ONCE]
            found = interleaved(
                self.bench,
                self.default,
                {name: self._choices[name] for name in some},
                rounds=self.rounds,
                zero=self._zero,
            )
            self._zero = found.baseline.ms if self._zero is None else self._zero
            self._noise = max(self._noise, found.noise, _NOISE_SHARE * self._zero)
            self._measured.setdefault(DEFAULT, found.baseline)
            self._measured |= found.measured
            self._broken |= found.broken
            for name, one in found.measured.items():
                self.say(f"{name}: {one.ms:.1f} ms ({one.against:+.1f}), {one.gb:.2f} GB")

    def _matters(self, slot: str, singles: Mapping[tuple[str, str], str]) -> bool:
        """Whether another kernel there makes a difference in time, or in memory."""
        base = self._measured[DEFAULT]
        found = [self._measured[name] for (own, _), name in singles.items() if own == slot and name in self._measured]
        return any(abs(one.against) > self._noise or abs(one.gb - base.gb) > _NOISE_GB for one in found)

    def _greedy(self, matters: frozenset[str]) -> str:
        """Takes what gains most, then what gains most next to it, and so on; says why it ended."""
        best, left = dict(self.default), set(matters)
        while left:
            tried = {self._named({**best, slot: kernel}): (slot, kernel) for slot, kernel in self._hopeful(left, best)}
            self._time(tried)
            ranked = sorted((name for name in tried if name in self._measured), key=self._rank)
            if not ranked or not self._better(ranked[0], self._named(best)):
                return f"nothing more gained over noise ({self._noise:.2f} ms)"
            slot, kernel = tried[ranked[0]]
            best[slot] = kernel
            left.discard(slot)
            if self._spent():
                break
        return "every slot that matters was chosen"

    def _hopeful(self, left: set[str], best: Choice) -> list[tuple[str, str]]:
        """What did not lose both time and memory when it was alone."""
        base = self._measured[DEFAULT]
        hopeful = []
        for slot, kernel in self._others():
            alone = self._measured.get(self._named({**self.default, slot: kernel}))
            worse = alone is None or (alone.against > self._noise and alone.gb > base.gb - _NOISE_GB)
            if slot in left and not worse:
                hopeful.append((slot, kernel))
        return hopeful

    def _together(self, matters: frozenset[str], singles: Mapping[tuple[str, str], str]) -> list[str]:
        """The kernels that nothing beats in their slot, of the slots that matter most, in every combination."""
        alone = {slot: self._alone(slot, singles) for slot in matters}
        slots = sorted(matters, key=lambda slot: max(abs(one.against) for one in alone[slot].values()), reverse=True)
        fixed = self._choices[self._recommended()]
        combined = itertools.product(*(self._unbeaten(alone[slot]) for slot in slots[:_TOGETHER]))
        return [self._named({**fixed, **dict(zip(slots, kernels, strict=False))}) for kernels in combined]

    def _alone(self, slot: str, singles: Mapping[tuple[str, str], str]) -> dict[str, Measured]:
        """Kernel -> what was measured of it, everything else as by default; the fastest first."""
        names = {kernel: name for (own, kernel), name in singles.items() if own == slot}
        known = {kernel: self._measured[name] for kernel, name in names.items() if name in self._measured}
        known[self.default[slot]] = self._measured[DEFAULT]
        return dict(sorted(known.items(), key=lambda item: item[1].ms))

    def _unbeaten(self, alone: Mapping[str, Measured]) -> list[str]:
        """The first few than which no other is faster and at most as large."""

        def beats(one: Measured, other: Measured) -> bool:
            return one.ms < other.ms - self._noise and one.gb <= other.gb + _NOISE_GB

        return [name for name, own in alone.items() if not any(beats(one, own) for one in alone.values())][:_BEST]

    def _rank(self, name: str) -> tuple[float, float]:
        return _rank(self._measured[name], self.limit(self._measured[DEFAULT].gb))

    def _better(self, name: str, other: str) -> bool:
        over, ms = self._rank(name)
        before, earlier = self._rank(other)
        return over < before - _NOISE_GB or (over <= before and ms < earlier - self._noise)

    def _recommended(self) -> str:
        changes = {name: _changes(self._choices[name], self.default) for name in self._measured}
        return _recommended(self._measured, changes, self.limit(self._measured[DEFAULT].gb), self._noise)

    def _spent(self) -> bool:
        return bool(self._measured) and (
            len(self._measured) + len(self._broken) >= MOST or self.clock() - self._begun > self.seconds
        )


def _rank(found: Measured, limit: float | None) -> tuple[float, float]:
    """Return GB over the limit, then ms: what does not fit comes last, the largest last of all."""
    return (0.0 if limit is None else max(0.0, found.gb - limit)), found.ms


def _recommended(
    measured: Mapping[str, Measured], changes: Mapping[str, int], limit: float | None, noise: float
) -> str:
    """Return, of those that fit and are as fast as the fastest, the one that changes least; then the smallest."""
    ranks = {name: _rank(one, limit) for name, one in measured.items()}
    over, fastest = min(ranks.values())
    alike = [name for name, (own, ms) in ranks.items() if own <= over and ms <= fastest + noise]
    return min(alike, key=lambda name: (changes[name], measured[name].gb, measured[name].ms))


def _changes(choice: Choice, default: Choice) -> int:
    return sum(kernel != default[slot] for slot, kernel in choice.items())
