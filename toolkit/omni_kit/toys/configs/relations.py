"""Toys in which one size is again the multiple of another that it is in the real config.

A toy has a size for each name. Where a part reads what another writes, or several pieces of it at once, its config
repeats that size under a name of its own, and no rule knows them all.
"""

import copy
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

_SHARES = tuple(map(Fraction, ("1", "4", "1/4", "2", "1/2", "8", "16")))
_SMALLEST = 8  # what is smaller counts something
_LARGE, _ROOM = 512, 64
_WIDTHS = ("hidden_size", "dim", "width", "channels", "size")
_TEXT = "text_config"

Path = tuple[str | int, ...]


def related(real: Mapping[str, Any], toy: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield toys that differ from `toy` in one size of a part that is not the text model, the likeliest first.

    Args:
        real: the config with the real sizes, of the same class as `toy`.
    """
    before, now = dict(_sizes(real)), dict(_sizes(toy))
    known = [path for path in now if path in before]
    large = {path: _ROOM for path in known if len(path) > 1 and _TEXT not in path and now[path] >= _LARGE}
    if large:
        toy, now = _with(toy, large), {**now, **large}
        yield toy
    widths = sorted((path for path in known if _rank(path) < len(_WIDTHS)), key=_rank)
    tried: set[tuple[Path, int]] = set()
    for share in _SHARES:
        for path in known:
            for other in widths:
                fitting = now[other] * share
                if (
                    path == other
                    or _TEXT in path
                    or path[:-1] == other[:-1] == ()
                    or before[path] != before[other] * share
                ):
                    continue
                if fitting.denominator == 1 and fitting != now[path] and (path, int(fitting)) not in tried:
                    tried.add((path, int(fitting)))
                    yield _with(toy, {path: int(fitting)})


def _rank(path: Path) -> int:
    """Return the place of a name among the words for widths; the first is the likeliest."""
    name = next(str(key) for key in reversed(path) if isinstance(key, str))
    return next((place for place, word in enumerate(_WIDTHS) if name.endswith(word)), len(_WIDTHS))


def _sizes(config: Mapping[str, Any] | list[Any], at: Path = ()) -> Iterator[tuple[Path, int]]:
    """Yield every size of a config and of its parts, by its path."""
    for key, value in config.items() if isinstance(config, Mapping) else enumerate(config):
        if isinstance(value, Mapping | list) and "token" not in str(key):
            yield from _sizes(value, (*at, key))
        elif isinstance(value, int) and not isinstance(value, bool) and value >= _SMALLEST and "token" not in str(key):
            yield (*at, key), value


def _with(toy: Mapping[str, Any], sizes: Mapping[Path, int]) -> dict[str, Any]:
    made = copy.deepcopy(dict(toy))
    for path, size in sizes.items():
        part: Any = made
        for key in path[:-1]:
            part = part[key]
        part[path[-1]] = size
    return made
