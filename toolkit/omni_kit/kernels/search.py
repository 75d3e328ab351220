"""The search: one slot at a time from the default, then the combinations that may be faster than the best so far.

What a combination takes is expected from what its kernels change alone. The search ends by itself once no combination
that is left can be expected to be the fastest, even if its kernels gain `_SYNERGY` together; at the latest after `MOST`
choices or the seconds that it was given. Slots that make no difference beyond noise keep the default.
"""

import itertools
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from omni_kit.kernels.pareto import pareto
from omni_kit.kernels.timing import ALIKE, Bench, Measured, Rounds, interleaved
from omni_kit.plurals import counted

Choice = Mapping[str, str]
MOST = 48
_TOGETHER = 5  # slots that are combined
_BEST = 3  # kernels of each of them
_SYNERGY = 0.15  # of the fastest step: what kernels may gain together over what they gain alone
_AT_ONCE = 8
_FEW = 3  # combinations of one comparison
_FINALISTS = 2  # that are measured again next to the default
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
        alone: slot and kernel -> the choice that has this kernel, with what it brings along, and else the default.
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
    alone: Mapping[tuple[str, str], str] = field(default_factory=dict)

    def finalists(self, limit: float | None) -> list[str]:
        """Return the choices to measure again: the recommended one, then the fastest others within `limit` GB."""
        names = dict.fromkeys([self.recommended, *self._fitting(limit)])
        return [name for name in names if name != DEFAULT][:_FINALISTS]

    def claimants(self, limit: float | None) -> list[str]:
        """Return the choices that fit and are faster than the recommended one, which these figures do not support."""
        best = self.measured[self.recommended]
        fits = limit is None or best.gb <= limit
        return [name for name in self._fitting(limit) if not fits or self.measured[name].ms < best.ms - self.noise]

    def _fitting(self, limit: float | None) -> list[str]:
        fitting = [name for name, one in self.measured.items() if limit is None or one.gb <= limit]
        return sorted(fitting, key=lambda name: self.measured[name].ms)

    def confirmed(self, last: Rounds[Choice], limit: float | None) -> "Found":
        """Return the search with the figures of its last rounds, and the recommendation that follows from these.

        Only choices of these rounds compete, all measured side by side. One that gains no more than noise over the
        default loses to it, unless the default does not fit and the choice is smaller.
        """
        again = {DEFAULT: last.baseline, **{name: one for name, one in last.measured.items() if name in self.choices}}
        noise = max(last.noise, ALIKE * last.baseline.ms)
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
        along: slot and kernel -> the kernels that this one needs in other slots.
        rounds: of each comparison.
        seconds: after which it tries nothing new.
    """

    bench: Bench[Choice]
    default: Choice
    kernels: Mapping[str, Sequence[str]]
    limit: Callable[[float], float | None] = lambda gb: None
    along: Mapping[tuple[str, str], Choice] = field(default_factory=dict)
    rounds: int = 3
    seconds: float = 240.0
    clock: Callable[[], float] = time.monotonic
    say: Callable[[str], None] = lambda line: None
    _choices: dict[str, Choice] = field(default_factory=dict)
    _measured: dict[str, Measured] = field(default_factory=dict)
    _broken: dict[str, str] = field(default_factory=dict)
    _noise: float = 0.0
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
            stopped = self._combined(matters, singles)
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
            singles,
        )

    def _others(self) -> list[tuple[str, str]]:
        return [
            (slot, kernel) for slot, names in self.kernels.items() for kernel in names if kernel != self.default[slot]
        ]

    def _named(self, choice: Choice) -> str:
        """Return the name of a choice, what it has other than the default; with what its kernels bring along."""
        choice = {**choice, **self._brought(choice)}
        other = [f"{slot}={kernel}" for slot, kernel in choice.items() if kernel != self.default[slot]]
        name = ", ".join(other) or DEFAULT
        self._choices.setdefault(name, dict(choice))
        return name

    def _brought(self, choice: Choice) -> Choice:
        """Return what the kernels of a choice need in other slots."""
        return {slot: own for item in choice.items() for slot, own in self.along.get(item, {}).items()}

    def _time(self, names: Iterable[str], against: str = DEFAULT) -> None:
        """Time those that were not yet; a few in each comparison, so that its rounds lie close together."""
        new = [name for name in dict.fromkeys(names) if name not in self._measured and name not in self._broken]
        for start in range(0, max(len(new), 0 if self._measured else 1), _AT_ONCE):
            if self._spent():
                return
            some = new[start : start + _AT_ONCE]
            found = interleaved(
                self.bench,
                self._choices[against],
                {name: self._choices[name] for name in some},
                rounds=self.rounds,
                zero=self._measured[against].ms if against in self._measured else None,
            )
            self._measured.setdefault(DEFAULT, found.baseline)
            base = self._measured[DEFAULT].ms
            self._noise = max(self._noise, found.noise, ALIKE * base)
            self._measured |= {name: replace(one, against=one.ms - base) for name, one in found.measured.items()}
            self._broken |= found.broken
            for name in found.measured:
                one = self._measured[name]
                self.say(f"{name}: {one.ms:.1f} ms ({one.against:+.1f}), {one.gb:.2f} GB")

    def _matters(self, slot: str, singles: Mapping[tuple[str, str], str]) -> bool:
        """Return whether another kernel there makes a difference in time, or in memory."""
        base = self._measured[DEFAULT]
        found = [self._measured[name] for (own, _), name in singles.items() if own == slot and name in self._measured]
        return any(abs(one.against) > self._noise or abs(one.gb - base.gb) > _NOISE_GB for one in found)

    def _combined(self, matters: frozenset[str], singles: Mapping[tuple[str, str], str]) -> str:
        """Time the combinations that may be the fastest, the likeliest first; return why that ended."""
        expected = self._expected(matters, singles)
        while not self._spent():
            best = self._recommended()
            left = [name for name in expected if name not in self._measured and name not in self._broken]
            hopeful = [name for name in left if self._hopeful(expected[name], best)]
            if not hopeful:
                return "no combination that is left can be expected to be faster"
            self._time(sorted(hopeful, key=lambda name: self._ranked(expected[name]))[:_FEW], best)
        return ""

    def _hopeful(self, expected: Measured, best: str) -> bool:
        """Return whether a combination may beat the best so far, where its kernels gain more together than alone."""
        over, fastest = self._ranked(self._measured[best])
        return expected.ms - _SYNERGY * fastest < fastest or self._ranked(expected)[0] < over - _NOISE_GB

    def _expected(self, matters: frozenset[str], singles: Mapping[tuple[str, str], str]) -> dict[str, Measured]:
        """Combination -> what it would take if its kernels changed as much together as they do alone."""
        base = self._measured[DEFAULT]
        alone = {slot: self._alone(slot, singles) for slot in matters}
        slots = sorted(matters, key=lambda slot: max(abs(one.against) for one in alone[slot].values()), reverse=True)
        found: dict[str, Measured] = {}
        for kernels in itertools.product(*(self._unbeaten(slot, alone[slot]) for slot in slots[:_TOGETHER])):
            changed = dict(zip(slots, kernels, strict=False))
            brought = self._brought(changed)
            parts = [alone[slot][kernel] for slot, kernel in changed.items() if slot not in brought]
            ms, gb = sum(one.against for one in parts), sum(one.gb - base.gb for one in parts)
            found[self._named({**self.default, **changed})] = Measured(base.ms + ms, base.gb + gb, ms)
        return found

    def _alone(self, slot: str, singles: Mapping[tuple[str, str], str]) -> dict[str, Measured]:
        """Kernel -> what was measured of it, everything else as by default; the fastest first."""
        names = {kernel: name for (own, kernel), name in singles.items() if own == slot}
        known = {kernel: self._measured[name] for kernel, name in names.items() if name in self._measured}
        known[self.default[slot]] = self._measured[DEFAULT]
        return dict(sorted(known.items(), key=lambda item: item[1].ms))

    def _unbeaten(self, slot: str, alone: Mapping[str, Measured]) -> list[str]:
        """Return the first few that no other beats in time or memory and equals in the other; of ties, the default."""
        own = alone[self.default[slot]]
        if any((slot, name) in self.along for name in alone):  # what came along made a part of the difference
            return list(alone)[:_BEST]

        def beats(one: Measured, other: Measured) -> bool:
            faster, smaller = one.ms < other.ms - self._noise, one.gb < other.gb - _NOISE_GB
            return (faster and one.gb <= other.gb + _NOISE_GB) or (smaller and one.ms <= other.ms + self._noise)

        def ties(one: Measured) -> bool:
            return one is not own and abs(one.ms - own.ms) <= self._noise and abs(one.gb - own.gb) <= _NOISE_GB

        left = [name for name, one in alone.items() if not ties(one)]
        return [name for name in left if not any(beats(one, alone[name]) for one in alone.values())][:_BEST]

    def _ranked(self, one: Measured) -> tuple[float, float]:
        return _rank(one, self.limit(self._measured[DEFAULT].gb))

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
