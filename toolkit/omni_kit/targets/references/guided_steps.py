"""Steps at which a sampler guides: authors may guide while the model's time is in an interval, and not outside it."""

import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Any

from omni_kit.upstream.repositories.processes.call_arguments import TRAINED

_CLOSE = 1e-6
_OUTER = 2  # functions around the one that calls the model
_IS_NOT, _MAY_BE = "<", "<="  # between a time and an end


def guided_within(
    step: Callable[[int], bool | None], times: Sequence[float], numbers: Sequence[float]
) -> tuple[float, float, str, str] | None:
    """Return the interval of times in which a sampler guides, as `Interval` takes it: both ends, and how the time is
    compared with them; None if no two of these numbers are its ends.

    Args:
        step: whether the sampler guides in its nth call of the model; None for neither the usual guidance nor none.
        times: the time of each call.
        numbers: the numbers that the sampler has, the likeliest first.
    """
    steps = list[tuple[float, bool]]()
    for place, time in enumerate(times):
        if (guided := step(place)) is None:
            return None
        steps.append((time, guided))
    steps.sort()
    inside = [place for place, (_, guided) in enumerate(steps) if guided]
    first, last = (inside[0], inside[-1]) if inside else (0, 0)
    if len(inside) in (0, len(steps)) or len(inside) != last - first + 1:
        return None
    low = _end(steps[first - 1][0], steps[first][0], numbers) if first else (0.0, _MAY_BE)
    whole = 1.0 if steps[-1][0] <= 1 else float(TRAINED)
    high = _end(steps[last + 1][0], steps[last][0], numbers) if last + 1 < len(steps) else (whole, _MAY_BE)
    return (low[0], high[0], low[1], high[1]) if low is not None and high is not None else None


def _end(outside: float, inside: float, numbers: Sequence[float]) -> tuple[float, str] | None:
    """Return the first number between the time of a step that is not guided and that of its neighbour which is, and how
    times are compared with it; None if there is none.
    """
    ends = sorted((outside, inside))
    found = next((one for one in numbers if ends[0] - _CLOSE <= one <= ends[1] + _CLOSE), None)
    if found is None:
        return None
    return found, _IS_NOT if math.isclose(found, outside, abs_tol=_CLOSE) else _MAY_BE


def numbers_of(frame: FrameType | None) -> list[float]:
    """Return the numbers of a function that runs and of those around it: first its variables and the attributes of its
    object, then what its code has written down.
    """
    frames = [*_frames(frame)]
    held = [value for one in frames for value in (*one.f_locals.values(), *_attributes(one.f_locals.get("self")))]
    written = [value for one in frames for value in one.f_code.co_consts]
    return [*dict.fromkeys(number for value in (*held, *written) for number in _numbers(value))]


def _frames(frame: FrameType | None) -> Iterator[FrameType]:
    for _ in range(_OUTER + 1):
        if frame is not None:
            yield frame
            frame = frame.f_back


def _attributes(held: Any) -> list[Any]:
    return [*vars(held).values()] if hasattr(held, "__dict__") and not inspect.ismodule(held) else []


def _numbers(value: Any) -> Iterator[float]:
    if isinstance(value, tuple | list) and len(value) == 2:
        yield from (number for one in value for number in _numbers(one))
    elif isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        yield float(value)
