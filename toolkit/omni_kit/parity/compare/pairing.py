"""Decides which module call of the candidate belongs to which of the reference."""

import math
import re
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import chain

from omni_kit.parity.compare.trace import ModuleCall, Recording

Pairs = dict[tuple[str, int], int]


def pair_calls(reference: Recording, candidate: Recording) -> Pairs:
    """(module, occurrence) in the candidate -> number of the call in the reference.

    First by name. What is left is paired below paired parents, in order: modules whose weights have the same shapes,
    which were only renamed; then modules with as many numbers, whose parts were split or fused. The rest stays
    without a partner, and its work counts as that of the module around it.
    """
    named = {(call.module, call.occurrence): call.number for call in reference.calls}
    pairs = {key: named[key] for call in candidate.calls if (key := (call.module, call.occurrence)) in named}
    taken = set(pairs.values())
    free = [call for call in reference.calls if call.number not in taken]
    for call in candidate.calls:  # parents come before their parts
        if (call.module, call.occurrence) in pairs or call.parent < 0:
            continue
        around = candidate.calls[call.parent]
        parent = pairs.get((around.module, around.occurrence))
        if parent is None or not call.weights:
            continue
        beside = [other for other in free if other.parent == parent and other.weights]
        alike = (other for other in beside if other.weights == call.weights)
        as_large = (other for other in beside if _elements(other.weights) == _elements(call.weights))
        if (partner := next(chain(alike, as_large), None)) is not None:
            pairs[call.module, call.occurrence] = partner.number
            free.remove(partner)
    return pairs


@cache
def _elements(weights: str) -> int:
    """Return how many numbers weights of these shapes hold."""
    return sum(math.prod(map(int, re.findall(r"\d+", shape))) for shape in re.findall(r"\[([^\]]*)\]", weights))


def paired(pairs: Mapping[tuple[str, int], int], calls: list[ModuleCall]) -> Iterator[tuple[ModuleCall, int]]:
    """The calls that have a partner, with its number."""
    for call in calls:
        if (number := pairs.get((call.module, call.occurrence))) is not None:
            yield call, number
