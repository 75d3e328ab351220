"""Decides which module call of the candidate belongs to which of the reference."""

import math
import re
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import chain

import torch

from omni_kit.parity.compare.trace import ModuleCall, Recording

Pairs = dict[tuple[str, int], int]
_SAME = 2e-2  # relative distance of inputs that differ by rounding alone, in bfloat16 too


def pair_calls(reference: Recording, candidate: Recording) -> Pairs:
    """(module, occurrence) in the candidate -> number of the call in the reference.

    First by name; calls of one module in one call of another are paired by their inputs where these come in another
    order, as when experts are visited in reverse. What is left is paired below paired parents, in order: modules whose
    weights have the same shapes, which were only renamed; then modules with as many numbers, whose parts were split or
    fused. The rest stays without a partner, and its work counts as that of the module around it.
    """
    named = {(call.module, call.occurrence): call.number for call in reference.calls}
    pairs = {key: named[key] for call in candidate.calls if (key := (call.module, call.occurrence)) in named}
    pairs |= _reordered(pairs, reference, candidate)
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


def _reordered(pairs: Pairs, reference: Recording, candidate: Recording) -> Pairs:
    """Other partners for calls of one module in one call of another, where another order brings all inputs together."""
    parents = {call.parent for recording in (reference, candidate) for call in recording.calls}
    groups: dict[tuple[str, int], list[ModuleCall]] = {}
    for call in candidate.calls:
        if (call.module, call.occurrence) in pairs and call.number not in parents and call.inputs:
            groups.setdefault((call.module, call.parent), []).append(call)
    found: Pairs = {}
    for calls in groups.values():
        numbers = [pairs[call.module, call.occurrence] for call in calls]
        if len(calls) == 1 or all(
            _meet(reference, number, candidate, call) for call, number in zip(calls, numbers, strict=True)
        ):
            continue
        free, other = list(numbers), {}
        for call in calls:
            if (number := next((one for one in free if _meet(reference, one, candidate, call)), None)) is None:
                break
            free.remove(number)
            other[call.module, call.occurrence] = number
        found |= other if not free else {}
    return found


def _meet(reference: Recording, number: int, candidate: Recording, call: ModuleCall) -> bool:
    """Return whether a call of the candidate and one of the reference have the same inputs up to rounding."""
    return all(
        _alike(reference.tensors.get(f"{number}.in.{name}"), candidate.tensors[f"{call.number}.in.{name}"])
        for name in call.inputs
    )


def _alike(one: torch.Tensor | None, other: torch.Tensor) -> bool:
    if one is None or one.shape != other.shape:
        return False
    one, other = one.double(), other.double()
    return bool((one - other).norm() <= _SAME * one.norm())


@cache
def _elements(weights: str) -> int:
    """Return how many numbers weights of these shapes hold."""
    return sum(math.prod(map(int, re.findall(r"\d+", shape))) for shape in re.findall(r"\[([^\]]*)\]", weights))


def paired(pairs: Mapping[tuple[str, int], int], calls: list[ModuleCall]) -> Iterator[tuple[ModuleCall, int]]:
    """The calls that have a partner, with its number."""
    for call in calls:
        if (number := pairs.get((call.module, call.occurrence))) is not None:
            yield call, number
