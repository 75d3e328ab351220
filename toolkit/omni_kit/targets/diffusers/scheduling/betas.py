"""Match of the authors' numbers with diffusers' beta schedules, by comparing numbers, never by names."""

import inspect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate, pairwise, product
from typing import Any, get_args

TRAINED_BETAS = "trained_betas"
"""The argument of a scheduler for betas of any schedule."""
_SCHEDULE, _START, _END, _COUNT = "beta_schedule", "beta_start", "beta_end", "num_train_timesteps"
_RESCALES = "rescale_betas_zero_snr"
_NOTHING = 1e-9
_HALVINGS = 40
_CLOSE = 1e-4
_LIKELY = 4
_DIGITS = (3, 5)
_ELSEWHERE = {_START: 0.003, _END: 0.04}  # ends that nobody asks for, to see whether they count
_PROBE = ((_SCHEDULE, "linear"), *_ELSEWHERE.items(), (_COUNT, 24))
# What authors keep of a schedule -> what is left of the picture after so many steps of noise.
_KEPT: tuple[Callable[[Sequence[float]], list[float]], ...] = (
    lambda v: [*accumulate((1 - one for one in v), lambda left, one: left * one)],  # betas
    lambda v: [*accumulate(v, lambda left, one: left * one)],  # alphas
    lambda v: [*v], lambda v: [one**2 for one in v],  # their products, and the roots of these
    lambda v: [1 - one for one in v], lambda v: [1 - one**2 for one in v],  # noise, and its roots
    lambda v: [1 / (1 + one**2) for one in v],  # noise for one part of the picture
    lambda v: [math.exp(2 * min(one, 1)) for one in v],  # logarithms of the roots
)  # fmt: skip


def schedules_of(name: str, tables: Sequence[Sequence[float]]) -> Iterator[dict[str, Any]]:
    """Yield the settings under which a scheduler has the numbers of one of the tables; each once."""
    seen: list[dict[str, Any]] = []
    taken = inspect.signature(schedulers()[name].__init__).parameters
    for table in tables if {_SCHEDULE, _START, _END, _COUNT} <= taken.keys() else ():
        for kept in filter(_is_kept, (one(table) for one in _KEPT)):
            rescales = kept[-1] < _NOTHING * kept[-2] and _RESCALES in taken
            found = _rescaled(name, tuple(kept)) if rescales else _settings(_alike(name), tuple(kept))
            if found is not None and found not in seen:
                seen.append(found)
                yield found


@dataclass(frozen=True)
class Betas:
    """Betas that tables may be made of.

    Attributes:
        numbers: the betas.
        readings: how tables lead to them: the place of a table, and the place of what it may hold.
    """

    numbers: list[float]
    readings: frozenset[tuple[int, int]]

    def among(self, others: Sequence["Betas"]) -> "Betas | None":
        """Return the betas of another number of steps that tables lead to in the same way; None without such."""
        best = max(others, key=lambda one: len(one.readings & self.readings), default=None)
        return best if best is not None and best.readings & self.readings else None


def betas_in(tables: Sequence[Sequence[float]]) -> list[Betas]:
    """Return the betas that tables may be made of: those that most of them agree on first.

    What a table holds is not known; that others are made of the same betas is evidence. Tables of one number more begin
    with what is left before the first step, which may be all: then the first beta is 0.
    """
    found: list[tuple[list[float], list[tuple[int, int]]]] = []
    for place, table in enumerate(tables):
        for reading, of_kept in enumerate(_KEPT):
            if not _is_left(kept := of_kept(table)):
                continue
            betas = [1 - one / before for one, before in zip(kept, [1.0, *kept], strict=False)]
            seen = next((readings for known, readings in found if _same(known, betas)), None)
            if seen is None:
                found.append((betas, [(place, reading)]))
            else:
                seen.append((place, reading))
    ordered = sorted(found, key=lambda each: -len({place for place, _ in each[1]}))[:_LIKELY]
    return [Betas(next((list(table) for table in tables if _same(table, betas)), betas), frozenset(readings))
            for betas, readings in ordered]  # fmt: skip


def _is_left(values: Sequence[float]) -> bool:
    """Return whether values fall from 1 at most, to nothing at the last step at the earliest."""
    return all(0 < one <= 1 for one in values[:-1]) and all(one > other >= 0 for one, other in pairwise(values))


def _is_kept(values: Sequence[float]) -> bool:
    return _is_left(values) and values[0] < 1


@cache
def _alike(name: str) -> str:
    """Return the plainest scheduler that makes the same of a schedule: those of one sort are asked once."""
    wanted = _numbers(name, _PROBE)
    return next(one for one in plainest_first() if one == name or (wanted and _numbers(one, _PROBE) == wanted))


@cache
def _settings(name: str, kept: tuple[float, ...]) -> dict[str, Any] | None:
    """Return the arguments with which a scheduler has these numbers; None if no schedule has them."""
    for schedule, digits in product(told(_SCHEDULE), _DIGITS):
        ends = {_START: short(1 - kept[0], digits), _END: short(1 - kept[-1] / kept[-2], digits)}
        said = {_SCHEDULE: schedule, _COUNT: len(kept)}
        own = _numbers(name, tuple({**said, **ends}.items()))
        if _same(own, kept):
            bound = _numbers(name, tuple({**said, **_ELSEWHERE}.items())) != own
            return {**said, **ends} if bound else said
    return None


@cache
def _rescaled(name: str, kept: tuple[float, ...]) -> dict[str, Any] | None:
    """Return the arguments with which a scheduler has these numbers, where it leaves nothing after the last step; the
    last beta is found by halving, as rescaling keeps only the first.
    """
    place = len(kept) // 2
    for schedule in told(_SCHEDULE):
        said = {_SCHEDULE: schedule, _COUNT: len(kept), _RESCALES: True}
        if _same(_numbers(name, tuple(said.items())), kept):
            return said
        said[_START] = short(1 - kept[0], _DIGITS[0])
        low, high = said[_START], 0.5
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            own = _numbers(name, tuple({**said, _END: middle}.items()))
            if not own or low == high:
                break
            low, high = (middle, high) if own[place] > kept[place] else (low, middle)
        said[_END] = short(high, _DIGITS[0])
        if _same(_numbers(name, tuple(said.items())), kept):
            return said
    return None


def short(number: float, digits: int) -> float:
    """Return a number as somebody wrote it: roots and products leave traces in its last digits."""
    return float(f"{number:.{digits}g}")


def _same(own: Sequence[float], kept: Sequence[float]) -> bool:
    return len(own) == len(kept) and all(
        math.isclose(one, other, rel_tol=_CLOSE, abs_tol=1e-7) for one, other in zip(own, kept, strict=True)
    )


@cache
def _numbers(name: str, config: tuple[tuple[str, Any], ...]) -> list[float]:
    """Return the shares of a picture that a scheduler leaves, step by step; empty if it does not have that schedule."""
    try:
        found: list[float] = schedulers()[name](**dict(config)).alphas_cumprod.tolist()
    except (NotImplementedError, ValueError, AttributeError, TypeError):
        return []
    return found


@cache
def schedulers() -> Mapping[str, Any]:
    """Return the schedulers that diffusers has, by name."""
    import diffusers

    every = {name: getattr(diffusers.schedulers, name, None) for name in sorted(dir(diffusers.schedulers))}
    base = diffusers.SchedulerMixin
    return {name: cls for name, cls in every.items()
            if inspect.isclass(cls) and issubclass(cls, base) and cls is not base}  # fmt: skip


def plainest_first() -> list[str]:
    """Return their names: variants have longer ones."""
    return sorted(schedulers(), key=lambda one: (len(one), one))


@cache
def told(name: str) -> tuple[Any, ...]:
    """The values that a setting can have: those that any scheduler says that it takes."""
    kinds = [one.annotation for cls in schedulers().values()
             if (one := inspect.signature(cls.__init__).parameters.get(name)) is not None]  # fmt: skip
    if bool in kinds:
        return (False, True)
    return tuple(dict.fromkeys(value for kind in kinds for value in _literals(kind)))


def _literals(kind: Any) -> Iterator[Any]:
    for one in get_args(kind):
        if isinstance(one, str | int):
            yield one
        else:
            yield from _literals(one)
