"""Judges low precision by ratio: the candidate may be a few times as far from float32 as upstream itself is.

A fixed tolerance says nothing in bfloat16, where a deep model is rightly far off and a norm that is computed in the
wrong dtype is hardly further. What upstream loses in the same dtype is the measure.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import cast

import torch

from omni_kit.parity.compare.comparison import NothingToCompare
from omni_kit.parity.compare.modules import without_padding
from omni_kit.parity.compare.pairing import pair_calls
from omni_kit.parity.compare.rounding import ENOUGH, Rounding, rounding
from omni_kit.parity.compare.scale import degenerate, unmarked
from omni_kit.parity.compare.trace import ModuleCall, Recording, fits
from omni_kit.targets.sides import Ability
from omni_kit.toys.batches.protocol import BatchBuilder
from omni_kit.toys.tensors import Tensors

DTYPES = ("bfloat16", "float16")
# A module that rounds where upstream rounds, in whatever order it adds, is 0.95 to 1.07 times as far off: over so many
# elements errors average out. A norm or rope computed in the low dtype is 1.3 times as far off or more; anything below
# a few hundred elements says less.
RATIO, RATIO_OF_FEW, FEW = 1.2, 2.0, 256
# Errors add up in logits and gradients by chance as well as by fault. Where upstream itself is far off, one flipped
# decision (an expert, a sign before a norm) makes most of the error, and a single sample of it says little.
RATIO_OF_SUMS, CHAOTIC, RATIO_OF_CHAOS = 2.0, 0.05, 16.0
Results = Callable[[str, str], Tensors]
Three = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


@dataclass(frozen=True)
class Loss:
    """Errors of both sides against float32 in some tensors.

    Attributes:
        reference, candidate: root mean square of the error over that of the float32 values.
        allowed: how far the candidate may be off.
    """

    name: str
    reference: float
    candidate: float
    allowed: float

    @property
    def excess(self) -> float:
        """Ratio of the candidate's error to the allowed one; passes up to 1."""
        return self.candidate / self.allowed


def module_loss(name: str, tensors: list[Three], dtype: str) -> Loss:
    """Return the error that one module adds itself."""
    few = sum(three[0].numel() for three in tensors) < FEW
    return _loss(name, tensors, dtype, lambda upstream: RATIO_OF_FEW if few else RATIO)


def total_loss(name: str, exact: Tensors, reference: Tensors, candidate: Tensors, dtype: str) -> Loss:
    """Return the error of the whole model, over all tensors that upstream has in both dtypes.

    What the candidate lacks of them it loses whole, save where there is nothing but zeros to lose.

    Raises:
        NothingToCompare: no such tensor exists, or all of them vanish.
    """
    shared = [key for key in exact if key in reference and (key in candidate or bool(exact[key].any()))]
    if not shared:
        raise NothingToCompare(f"{name}: upstream has nothing in {dtype} that could be judged")
    if why := degenerate({key: exact[key] for key in shared}):
        raise NothingToCompare(f"{why}: so the toy tests nothing")
    if lacking := [key for key in shared if key not in candidate]:
        return Loss(f"{name} without {lacking[0]}", 0.0, math.inf, 1.0)
    tensors = [(exact[key], reference[key], candidate[key]) for key in shared]
    return _loss(name, tensors, dtype, lambda upstream: RATIO_OF_CHAOS if upstream > CHAOTIC else RATIO_OF_SUMS)


def loss_of(results: Results, what: str, dtype: str, candidate: str, only: str = "") -> Loss:
    """Return the error of a whole run in a low dtype, next to upstream's run in the same dtype.

    Args:
        results: side, and "outputs" or "gradients" -> tensors.
        candidate: the side that is judged.
        only: one tensor instead of all.
    """
    exact, reference, other = (results(side, what) for side in ("reference", f"reference/{dtype}", candidate))
    kept = {name: tensor for name, tensor in exact.items() if only in ("", name)}
    return total_loss(only or what, kept, reference, other, dtype)


def _loss(name: str, tensors: list[Three], dtype: str, ratio: Callable[[float], float]) -> Loss:
    """Errors of tensors, each as (float32, reference, candidate), taken together.

    A fraction of one rounding of the dtype is always allowed: upstream loses nothing at all where it only copies.
    """
    kept = [unmarked(three[0]) for three in tensors]
    theirs, mine = (
        _distance(
            [(three[0][own], three[side].reshape(own.shape)[own]) for three, own in zip(tensors, kept, strict=True)]
        )
        for side in (1, 2)
    )
    return Loss(name, theirs, mine, ratio(theirs) * max(theirs, torch.finfo(getattr(torch, dtype)).eps / 16))


def _distance(pairs: list[tuple[torch.Tensor, torch.Tensor]]) -> float:
    size = sum(float(exact.double().square().sum()) for exact, _ in pairs)
    error = sum(float((other.double() - exact.double()).square().sum()) for exact, other in pairs)
    if not math.isfinite(error):
        return math.inf
    return float((error / size) ** 0.5) if size else float(error > 0)


def judged_losses(
    results: Results, batch_builder: BatchBuilder, dtype: str, candidate: str, offers: frozenset[Ability]
) -> list[Loss]:
    """Return the errors of a run in a low dtype, for each judged output and for all gradients.

    Raises:
        NothingToCompare: no answer is judged, or one has nothing to be compared with.
    """
    answers = batch_builder.judged(list(results("reference", "outputs")))
    if not answers:
        raise NothingToCompare(f"no upstream output can be judged in {dtype}")
    losses = [loss_of(results, "outputs", dtype, candidate, only=answer) for answer in answers]
    if Ability.gradient in offers:
        losses.append(loss_of(results, "gradients", dtype, candidate))
    return losses


class Replays:
    """Upstream's free run in float32, and both sides' replays of it in a low dtype.

    Args:
        mask: which tokens are not padding, [batch, length].
    """

    def __init__(self, exact: Recording, reference: Recording, candidate: Recording, mask: torch.Tensor) -> None:
        self._exact = exact
        self._replays = (reference, candidate)
        self._partners = tuple(_by_partner(exact, replay) for replay in self._replays)
        self._mask = mask.bool()

    def losses(self, dtype: str) -> Iterator[Loss]:
        """Yield the error that each module adds itself, in the order in which the modules are called."""
        for call in self._exact.calls:
            numbers = [partners.get(call.number) for partners in self._partners]
            found = (self._three(call.number, numbers, f"out.{name}") for name in call.outputs)
            if tensors := [three for three in found if three is not None]:
                yield module_loss(call.module, tensors, dtype)

    def roundings(self, dtype: str) -> Iterator[Rounding]:
        """Yield how each module differs from upstream in the low dtype itself: outputs, then inputs of parts."""
        right = []
        for call in self._exact.calls:
            numbers = [partners.get(call.number) for partners in self._partners]
            if None in numbers:
                continue
            mine, theirs = (replay.calls[cast(int, n)] for replay, n in zip(self._replays, numbers, strict=True))
            outputs = {name: self._three(call.number, numbers, f"out.{name}") for name in call.outputs}
            found = rounding(mine, theirs, {name: three[1:] for name, three in outputs.items() if three}, dtype)
            yield found
            if not found.wrong:
                right.append((call, mine, theirs))
        for call, mine, theirs in right:
            yield from self._passed_on(call, mine, theirs, dtype)

    def _passed_on(self, call: ModuleCall, mine: ModuleCall, theirs: ModuleCall, dtype: str) -> Iterator[Rounding]:
        """Yield what is wrong with the tensors that a module computes for its parts, whose outputs are upstream's."""
        for part in self._exact.calls:
            numbers = [partners.get(part.number) for partners in self._partners]
            if part.parent != call.number or None in numbers:
                continue
            both = (replay.calls[cast(int, n)] for replay, n in zip(self._replays, numbers, strict=True))
            if [one.parent for one in both] != [mine.number, theirs.number]:
                continue
            for name in part.inputs:
                three = self._three(part.number, numbers, f"in.{name}")
                if three is None or three[1].dtype != three[2].dtype or three[1].numel() < ENOUGH:
                    continue
                if (found := rounding(mine, theirs, {name: three[1:]}, dtype)).wrong:
                    yield found

    def _three(self, number: int, numbers: list[int | None], name: str) -> Three | None:
        """Return one tensor of a call on all sides, as "out.NAME"; None if a side lacks it or it has no finite
        numbers.
        """
        exact = self._exact.tensors.get(f"{number}.{name}")
        if exact is None or not exact.is_floating_point() or not exact.numel() or not bool(exact.isfinite().all()):
            return None
        others = [
            replay.tensors.get(f"{partner}.{name}") for replay, partner in zip(self._replays, numbers, strict=True)
        ]
        reference, candidate = (
            other.reshape(exact.shape) if other is not None and fits(exact.shape, other.shape) else None
            for other in others
        )
        if reference is None or candidate is None:
            return None
        kept = [without_padding(tensor, self._mask) for tensor in (exact, reference, candidate)]
        return (kept[0], kept[1], kept[2]) if bool(kept[1].isfinite().all()) else None


def _by_partner(exact: Recording, replay: Recording) -> dict[int, int]:
    """Number of a call in `exact` -> number of its partner in the replay."""
    pairs = pair_calls(exact, replay)
    return {pairs[key]: call.number for call in replay.calls if (key := (call.module, call.occurrence)) in pairs}
