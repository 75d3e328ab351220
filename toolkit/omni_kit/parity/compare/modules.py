"""Finds the first module that adds error, forward or backward, in what both sides recorded."""

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import torch

from omni_kit.parity.compare.pairing import Pairs, named_alike, pair_calls
from omni_kit.parity.compare.scale import scale
from omni_kit.parity.compare.tensors import FLOAT32_TOLERANCE
from omni_kit.parity.compare.trace import ModuleCall, Recording, fits
from omni_kit.parity.report.report import Divergence, Growth

# A gradient far smaller than the largest is mostly rounding; it is judged by this share of the largest.
_FLOOR = 1e-3


@dataclass(frozen=True)
class Blame:
    """A module that adds error, how much, and where it shows.

    Attributes:
        reordered: what it passes on is only in another order.
    """

    call: ModuleCall
    added: float
    what: str
    reordered: bool = False


class Compared:
    """Two recordings side by side.

    Args:
        mask: which tokens are not padding, [batch, length]; samples without padding have none.
    """

    def __init__(self, reference: Recording, candidate: Recording, mask: torch.Tensor) -> None:
        self.pairs: Pairs = pair_calls(reference, candidate)
        self.reference = named_alike(reference, candidate, self.pairs)
        self.candidate = candidate
        self._mask = mask.bool()
        gradients = [t for name, t in reference.tensors.items() if ".grad_" in name and t.numel()]
        self._gradient_floor = _FLOOR * max(map(scale, gradients), default=0.0)

    def partner(self, call: ModuleCall) -> int | None:
        """Return the number of the reference's call that belongs to a candidate's."""
        return self.pairs.get((call.module, call.occurrence))

    def same(self, call: ModuleCall) -> ModuleCall:
        """Return the candidate's call of the same module in this run."""
        return next(c for c in self.candidate.calls if (c.module, c.occurrence) == (call.module, call.occurrence))

    def paired_around(self, call: ModuleCall) -> ModuleCall:
        """Return the nearest module with a partner: what happens in one without is the work of the one around it."""
        while self.partner(call) is None and call.parent >= 0:
            call = self.candidate.calls[call.parent]
        return call

    def error(self, call: ModuleCall, side: str) -> float:
        """Return the largest relative error among the tensors that both sides have in the same size; 0 without any.

        Args:
            side: "in", "out", "grad_in" or "grad_out".
        """
        number, floor = self.partner(call), self._gradient_floor if side.startswith("grad") else 0.0
        largest = 0.0
        for name in names_of(call, side):
            mine = self.candidate.tensors.get(f"{call.number}.{side}.{name}")
            theirs = self.reference.tensors.get(f"{number}.{side}.{name}")
            if mine is not None and theirs is not None and fits(mine.shape, theirs.shape):
                largest = max(largest, relative_error(theirs, mine.reshape(theirs.shape), self._mask, floor))
        return largest

    def settles(self, call: ModuleCall, tolerance: float) -> bool:
        """Return whether a call's answer is right; that of a whole model which answers in another form than
        upstream's is not known to be.
        """
        if self.error(call, "out") > tolerance:
            return False
        return call.parent >= 0 or bool(set(call.outputs) & set(self.reference.calls[self.pairs["", 0]].outputs))

    def reordered(self, call: ModuleCall, tolerance: float) -> bool:
        """Return whether every tensor that goes into a call holds the numbers that upstream's does, in whatever
        order.
        """
        number = self.partner(call)
        for name in call.inputs:
            mine = self.candidate.tensors[f"{call.number}.in.{name}"]
            theirs = self.reference.tensors.get(f"{number}.in.{name}")
            if theirs is None or not fits(mine.shape, theirs.shape):
                continue
            if relative_error(theirs.flatten().sort().values, mine.flatten().sort().values, self._mask) > tolerance:
                return False
        return True

    def lost_gradients(self, call: ModuleCall, side: str) -> list[str]:
        """Return the tensors of a call that get a gradient upstream, not zero everywhere, and none in the candidate."""
        number = self.partner(call)
        upstream = {name: self.reference.tensors.get(f"{number}.{side}.{name}") for name in names_of(call, side)}
        fed = [name for name, gradient in upstream.items() if gradient is not None and bool(gradient.any())]
        return [name for name in fed if f"{call.number}.{side}.{name}" not in self.candidate.tensors]


def names_of(call: ModuleCall, side: str) -> Sequence[str]:
    """Return the tensors that go in, or come out."""
    return call.inputs if side.endswith("in") else call.outputs


def relative_error(reference: torch.Tensor, candidate: torch.Tensor, mask: torch.Tensor, floor: float = 0.0) -> float:
    """Largest difference over the largest element, padding left out; for integers the share that differs."""
    reference, candidate = without_padding(reference, mask), without_padding(candidate, mask)
    if torch.equal(reference, candidate):
        return 0.0
    if not reference.is_floating_point():
        return float((reference != candidate).float().mean())
    if not torch.equal(reference.isfinite(), candidate.isfinite()):
        return math.inf
    reference, candidate = reference.double().nan_to_num(), candidate.double().nan_to_num()  # masks are infinite
    size = max(scale(reference), floor)
    return float((reference - candidate).abs().max()) / size if size else math.inf


def without_padding(tensor: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Return the tokens that count, of a tensor whose first axes are [batch, length] or their product; others as they
    are.
    """
    if tensor.shape[:2] == mask.shape:
        return tensor[mask]
    if tensor.dim() and tensor.shape[0] == mask.numel():
        return tensor[mask.flatten()]
    return tensor


def first_forward(replay: Compared, free: Compared, tolerance: float = FLOAT32_TOLERANCE) -> Blame | None:
    """Return the first module that adds error although everything before it was put right.

    A module whose output is right when the candidate runs freely is excused, with all its parts: it goes another way
    to the same result. So may a module with a fault somewhere in it. If all that speaks against it is that it passes on
    the same things in another order, then a part of it is to blame that is given the right thing and returns a wrong
    one, if there is any.
    """
    blames = list(_blames(replay, free, tolerance))
    if not blames or not blames[0].reordered:
        return blames[0] if blames else None
    within = (later for later in blames if _is_part(replay, later.call, blames[0].call))
    return next((later for later in within if _spoils(free, later.call, tolerance)), blames[0])


def _is_part(recorded: Compared, call: ModuleCall, whole: ModuleCall) -> bool:
    while call.parent >= 0:
        call = recorded.candidate.calls[call.parent]
        if call.number == whole.number:
            return True
    return False


def _spoils(free: Compared, call: ModuleCall, tolerance: float) -> bool:
    """Return whether the input is right and the output wrong, without any interference."""
    same = free.same(call)
    return free.error(same, "in") <= tolerance < free.error(same, "out")


def _blames(replay: Compared, free: Compared, tolerance: float) -> Iterator[Blame]:
    """Yield every module that adds error, in order, those that are excused left out."""
    calls = replay.candidate.calls
    excused: set[int] = set()
    for kind, number in replay.candidate.events:
        call = calls[number]
        if call.parent in excused:
            excused.add(number)
        if number in excused or replay.partner(call) is None or (error := replay.error(call, kind)) <= tolerance:
            continue
        blamed = call if kind == "out" or call.parent < 0 else replay.paired_around(calls[call.parent])
        if replay.partner(blamed) is None or free.settles(free.same(blamed), tolerance):
            excused.add(blamed.number)
            continue
        if kind == "out":
            yield Blame(blamed, error, "what it returns")
        else:
            yield Blame(blamed, error, f"its input to {call.module}", replay.reordered(call, tolerance))


def first_backward(free: Compared, tolerance: float, sound: Collection[str] = ()) -> Blame | None:
    """Return the first module, in the order of the backward pass, to change or lose a gradient that came to it right.

    Args:
        sound: parameters whose gradients are right; a module that has such ones alone was given what it should be,
            if in another order.
    """
    calls = free.candidate.calls
    for kind, number in reversed(free.candidate.events):
        call, side = calls[number], f"grad_{kind}"
        if free.partner(call) is None:
            continue
        lost = free.lost_gradients(call, side)
        cut = [name for name in lost if f"{kind}.{name}" not in call.differentiable]
        if kind == "out" and cut:
            return Blame(call, 1.0, "the gradient that it cuts off")
        # What comes in without a graph was cut off by the module that made it, which is still to come.
        error = max(free.error(call, side), 1.0 if len(lost) > len(cut) else 0.0)
        if error <= tolerance:
            continue
        if kind == "in":
            return Blame(call, error, "the gradient that it passes on")
        if any(name.rpartition(".")[0] == call.module for name in sound):
            continue
        around = free.paired_around(calls[call.parent]) if call.parent >= 0 else call
        return Blame(around, error, f"the gradient that it returns to {call.module}")
    return None


def owner(free: Compared, parameters: Sequence[str]) -> Blame | None:
    """Return the module, last in the model, that holds one of the parameters whose gradients are wrong."""
    holders = [
        call
        for name in parameters
        for call in free.candidate.calls
        if call.module and name.startswith(f"{call.module}.") and free.partner(call) is not None
    ]
    if not holders:
        return None
    innermost = max(holders, key=lambda call: (call.number, len(call.module)))
    return Blame(innermost, 1.0, "the gradient of its own weights")


def divergence(blame: Blame, free: Compared) -> Divergence:
    """Return the report's entry for a module that adds error."""
    call = next(
        c for c in free.candidate.calls if (c.module, c.occurrence) == (blame.call.module, blame.call.occurrence)
    )
    number = free.partner(call)
    return Divergence(
        module=call.module or call.kind,
        added=blame.added,
        inherited=free.error(call, "in"),
        what=blame.what,
        candidate_source=call.source,
        reference_source=free.reference.calls[number].source if number is not None else "",
        growth=tuple(growth(free)),
    )


def growth(free: Compared) -> Iterator[Growth]:
    """Yield the output error of each module when the candidate runs freely, in the order of their outputs."""
    for kind, number in free.candidate.events:
        call = free.candidate.calls[number]
        if kind == "out" and free.partner(call) is not None:
            yield Growth(call.module, free.error(call, "out"))
