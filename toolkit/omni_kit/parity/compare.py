"""Compares the tensors of the two sides."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch

from omni_kit.parity.report import Worst
from omni_kit.targets.builder import Tensors

# The same mathematics in another order of operations is a few float32 steps (2**-23) off: at most 24 in logits, losses
# and gradients of twenty models. One expert scaled by 1.01 is off by 30,000.
FLOAT32_TOLERANCE = 128 * torch.finfo(torch.float32).eps
# A model that magnifies rounding is allowed more: so many times what one step in each weight does to upstream itself.
_ROUNDINGS = 16
# But never so much that a fault could pass for rounding, be it that a nudge sent a token to another expert.
_MOST = 1e-3
# A tensor far smaller than the largest of its group is mostly rounding (a key bias has no gradient at all in exact
# arithmetic), so it is judged by this share of the largest.
_FLOOR = 1e-3
# Random numbers hit some of a hundred thousand values of a ramp by chance.
_BY_CHANCE = 0.05


@dataclass
class Comparison:
    """The outcome for one group of tensors.

    Attributes:
        missing: names that only the reference has.
        unexpected: names that only the candidate has.
        worst: every tensor that differs by more than allowed, worst first.
        compared: how many tensors both sides have.
        tolerance: what was allowed for the tensor that gave `max_rel`.
    """

    max_abs: float = 0.0
    max_rel: float = 0.0
    missing: list[str] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)
    worst: list[Worst] = field(default_factory=list)
    compared: int = 0
    tolerance: float = 0.0

    @property
    def ok(self) -> bool:
        return self.compared > 0 and not (self.missing or self.unexpected or self.worst)

    def absorb(self, other: "Comparison") -> None:
        """Adds another group: the largest difference counts, and all that is wrong."""
        self.compared += other.compared
        self.missing += other.missing
        self.unexpected += other.unexpected
        self.worst = sorted([*self.worst, *other.worst], key=lambda worst: -worst.max_rel)
        self.max_abs = max(self.max_abs, other.max_abs)
        if other.max_rel >= self.max_rel:
            self.max_rel, self.tolerance = other.max_rel, other.tolerance

    def reason(self, what: str) -> str:
        """One line that names what differs; empty when nothing does."""
        parts = []
        if self.missing:
            parts.append(f"{len(self.missing)} {what} missing: {listed(self.missing)}")
        if self.unexpected:
            parts.append(f"{len(self.unexpected)} {what} that the reference does not have: {listed(self.unexpected)}")
        if self.worst:
            named = [f"{worst.name} ({worst.why})" if worst.why else worst.name for worst in self.worst]
            parts.append(f"{len(self.worst)} of {self.compared} {what} differ: {listed(named)}")
        if not self.compared and not parts:
            parts.append(f"no {what} to compare")
        return "; ".join(parts)


def listed(names: Sequence[str], limit: int = 4) -> str:
    """The first names, and how many more there are."""
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more


def compare_shapes(reference: Mapping[str, Sequence[int]], candidate: Mapping[str, Sequence[int]]) -> Comparison:
    """Names and shapes; a tensor of another shape is among `worst`."""
    result = _names(list(reference), list(candidate))
    for name in (name for name in reference if name in candidate):
        if list(reference[name]) != list(candidate[name]):
            why = f"{list(candidate[name])} instead of {list(reference[name])}"
            result.worst.append(Worst(name, math.inf, math.inf, why))
    return result


def compare_exactly(reference: Tensors, candidate: Tensors) -> Comparison:
    """Bit for bit; the reason of each difference says how the two are related, where they are."""
    return _compare(reference, candidate, dict.fromkeys(reference, 0.0), floor=0.0)


def compare_closely(reference: Tensors, candidate: Tensors, nudged: Tensors) -> Comparison:
    """Up to rounding, relative to each tensor's own largest element.

    Args:
        nudged: what the reference gives when each of its weights is moved to the next float32 number.
    """
    floor = _FLOOR * max((_scale(tensor) for tensor in reference.values()), default=0.0)
    shared = (name for name in reference if name in nudged)
    rounding = {name: _difference(name, reference[name], nudged[name], floor).max_rel for name in shared}
    return _compare(reference, candidate, {name: _allowed(response) for name, response in rounding.items()}, floor)


def _allowed(response: float) -> float:
    """What a tensor may differ by, given what one step in each weight does to it upstream."""
    magnified = _ROUNDINGS * response if math.isfinite(response) else 0.0
    return min(max(FLOAT32_TOLERANCE, magnified), _MOST)


def without_lone_zeros(tensors: Tensors, other: Tensors) -> Tensors:
    """`tensors` without those that are zero everywhere and that the other side does not have.

    A gradient of zeros and no gradient move a parameter equally little.
    """
    return {name: tensor for name, tensor in tensors.items() if name in other or bool(tensor.any())}


def unexercised(parameters: Sequence[str], gradients: Tensors) -> list[str]:
    """The parameters, and the single experts of stacked ones, that no gradient reaches: unproven ones."""
    found = [name for name in parameters if name not in gradients or not bool(gradients[name].any())]
    for name, gradient in gradients.items():
        if gradient.dim() == 3 and name not in found:
            found += [f"{name}[{index}]" for index, part in enumerate(gradient) if not bool(part.any())]
    return found


def _compare(reference: Tensors, candidate: Tensors, allowed: Mapping[str, float], floor: float) -> Comparison:
    result = _names(list(reference), list(candidate))
    for name in (name for name in reference if name in candidate):
        found = _difference(name, reference[name], candidate[name], floor)
        result.max_abs = max(result.max_abs, found.max_abs)
        if found.max_rel >= result.max_rel:
            result.max_rel, result.tolerance = found.max_rel, allowed.get(name, FLOAT32_TOLERANCE)
        if found.max_rel > allowed.get(name, FLOAT32_TOLERANCE):
            result.worst.append(found)
    result.worst.sort(key=lambda worst: -worst.max_rel)
    return result


def _names(reference: list[str], candidate: list[str]) -> Comparison:
    here, there = set(reference), set(candidate)
    missing = [name for name in reference if name not in there]
    unexpected = [name for name in candidate if name not in here]
    return Comparison(missing=missing, unexpected=unexpected, compared=len(here & there))


def _difference(name: str, reference: torch.Tensor, candidate: torch.Tensor, floor: float) -> Worst:
    if reference.shape != candidate.shape:
        why = f"shape {list(candidate.shape)} instead of {list(reference.shape)}"
        return Worst(name, math.inf, math.inf, why)
    if reference.dtype != candidate.dtype:
        return Worst(name, math.inf, math.inf, f"{candidate.dtype} instead of {reference.dtype}")
    if torch.equal(reference, candidate):
        return Worst(name, 0.0, 0.0)
    if not bool(candidate.isfinite().all()):
        return Worst(name, math.inf, math.inf, "not finite")
    max_abs = float((reference.double() - candidate.double()).abs().max())
    scale = max(_scale(reference), floor)
    why = related(reference, candidate) if floor == 0.0 else ""
    return Worst(name, max_abs, max_abs / scale if scale else math.inf, why)


def _scale(tensor: torch.Tensor) -> float:
    return float(tensor.abs().max()) if tensor.numel() else 0.0


def related(reference: torch.Tensor, candidate: torch.Tensor) -> str:
    """How wrong values relate to the right ones: what a person would look for first."""
    if candidate.dim() == 3 and candidate.shape[1] % 2 == 0:
        if torch.equal(torch.cat(candidate.chunk(2, dim=1)[::-1], dim=1), reference):
            return "gate and up are swapped"
        interleaved = candidate.reshape(len(candidate), -1, 2, candidate.shape[2]).transpose(1, 2).flatten(1, 2)
        if torch.equal(interleaved, reference):
            return "gate and up are interleaved"
    if torch.equal(candidate.flatten().sort().values, reference.flatten().sort().values):
        return "the right values in the wrong order, as after a wrong transpose, view or expert order"
    if float(torch.isin(candidate, reference).float().mean()) < _BY_CHANCE:
        return "not the values of the checkpoint: it was never loaded"
    return "some of the values are wrong"
