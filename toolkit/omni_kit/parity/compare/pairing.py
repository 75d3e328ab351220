"""Decides which module call of the candidate belongs to which of the reference."""

import math
import re
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import replace
from functools import cache

import torch

from omni_kit.parity.compare.trace import ModuleCall, Recording, fits

Pairs = dict[tuple[str, int], int]
_SAME = 2e-2  # relative distance of inputs that differ by rounding alone, in bfloat16 too


def pair_calls(reference: Recording, candidate: Recording) -> Pairs:
    """(module, occurrence) in the candidate -> number of the call in the reference.

    First by name; calls of one module in one call of another are paired by their inputs where these come in another
    order, as when experts are visited in reverse. What is left is paired below paired parents: modules whose weights
    have the same shapes, which were only renamed, or without weights those of one class; then modules with as many
    numbers, whose parts were split or fused. They are paired in order where both have as many of them, and otherwise by
    what goes in or comes out. A module around a single other one, such as a projection with its activation, has that
    one's weights and is paired with such a module alone. The rest stays without a partner, and its work counts as that
    of the module around it.
    """
    named = {(call.module, call.occurrence): call.number for call in reference.calls}
    pairs = {key: named[key] for call in candidate.calls if (key := (call.module, call.occurrence)) in named}
    pairs |= _reordered(pairs, reference, candidate)
    here, there = _Partners(candidate), _Partners(reference)
    here.numbers = {call.number: number for call, number in paired(pairs, candidate.calls)}
    there.numbers = {number: number for number in pairs.values()}
    for call in candidate.calls:  # parents come before their parts
        if call.number in here.numbers or call.parent < 0:
            continue
        number = next(filter(None, (_partner(call, here, there, alike) for alike in (_structure, _size))), None)
        if number is not None:
            pairs[call.module, call.occurrence] = here.numbers[call.number] = there.numbers[number] = number
    return pairs


class _Partners:
    """One side's calls, and the numbers of the reference's calls that they have as partners."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.numbers: dict[int, int] = {}
        inner = (one for one in recording.calls if one.weights and one.parent >= 0)
        self.around_one = {one.parent for one in inner if one.weights == recording.calls[one.parent].weights}

    def around(self, call: ModuleCall) -> int:
        """Return the partner of the innermost call around a call that has one; -1 if none has."""
        number = call.parent
        while number >= 0 and number not in self.numbers:
            number = self.recording.calls[number].parent
        return self.numbers.get(number, -1)

    def free(self, around: int, alike: "_Alike", what: Hashable) -> list[ModuleCall]:
        """Return the calls without a partner below a pair that are alike in something."""
        free = (one for one in self.recording.calls if one.number not in self.numbers and one.parent >= 0)
        return [one for one in free if alike(self, one) == what and self.around(one) == around]


_Alike = Callable[[_Partners, ModuleCall], Hashable]


def _structure(side: _Partners, call: ModuleCall) -> Hashable:
    return (call.weights, call.number in side.around_one) if call.weights else call.kind


def _size(side: _Partners, call: ModuleCall) -> Hashable:
    """Return the number of elements of the weights; None if a call in it has the same."""
    return _elements(call.weights) if call.weights and call.number not in side.around_one else None


def _partner(call: ModuleCall, here: _Partners, there: _Partners, alike: _Alike) -> int | None:
    """Return the number of the call of the reference that is alike, if it is clear which one that is."""
    if (what := alike(here, call)) is None:
        return None
    around = here.around(call)
    # calls below later ones may still get a closer parent
    ours = [one for one in here.free(around, alike, what) if one.parent < call.number]
    theirs = there.free(around, alike, what)
    if len(ours) == len(theirs):
        return theirs[0].number
    return next((one.number for one in theirs if _meets(there.recording, one, here.recording, call)), None)


def _meets(reference: Recording, theirs: ModuleCall, candidate: Recording, ours: ModuleCall) -> bool:
    """Return whether all that goes into two calls, or all that comes out, is the same up to rounding."""
    for side, there, here in (("in", theirs.inputs, ours.inputs), ("out", theirs.outputs, ours.outputs)):
        upstream = [reference.tensors[f"{theirs.number}.{side}.{name}"] for name in there]
        mine = [candidate.tensors[f"{ours.number}.{side}.{name}"] for name in here]
        if mine and len(mine) == len(upstream) and all(map(_alike, upstream, mine)):
            return True
    return False


def named_alike(reference: Recording, candidate: Recording, pairs: Pairs) -> Recording:
    """Return the reference's recording with the candidate's names for what goes in and out of paired modules.

    Names that both have stay. The others belong together in their order where the tensors have the same size: a forward
    may name its arguments otherwise, or return them in a tuple.
    """
    renamed: dict[int, dict[str, str]] = {}
    for call, number in paired(pairs, candidate.calls):
        theirs, keys = reference.calls[number], renamed.setdefault(number, {})
        for side, here, there in (("in", call.inputs, theirs.inputs), ("out", call.outputs, theirs.outputs)):
            free = [name for name in there if name not in here]
            for old, new in zip(free, (name for name in here if name not in there), strict=False):
                one = reference.tensors[f"{number}.{side}.{old}"]
                other = candidate.tensors[f"{call.number}.{side}.{new}"]
                if call.parent >= 0 and fits(one.shape, other.shape):
                    keys[f"{side}.{old}"] = f"{side}.{new}"
    if not any(renamed.values()):
        return reference
    return Recording(
        [_renamed(call, renamed.get(call.number, {})) for call in reference.calls],
        reference.events,
        {_key(name, renamed): tensor for name, tensor in reference.tensors.items()},
    )


def _renamed(call: ModuleCall, names: Mapping[str, str]) -> ModuleCall:
    return replace(
        call,
        inputs=[names.get(f"in.{name}", f"in.{name}").partition(".")[2] for name in call.inputs],
        outputs=[names.get(f"out.{name}", f"out.{name}").partition(".")[2] for name in call.outputs],
        differentiable=[names.get(name, name) for name in call.differentiable],
    )


def _key(name: str, renamed: Mapping[int, Mapping[str, str]]) -> str:
    """Return the name of a recorded tensor, or of its gradient, after renaming."""
    number, _, rest = name.partition(".")
    side, grad = rest.removeprefix("grad_"), "grad_" * rest.startswith("grad_")
    return f"{number}.{grad}{renamed.get(int(number), {}).get(side, side)}"


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
