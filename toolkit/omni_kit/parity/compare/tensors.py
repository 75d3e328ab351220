"""Compares the tensors of the two sides."""

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import median

import torch

from omni_kit.parity.compare.comparison import Comparison, NothingToCompare, names_compared
from omni_kit.parity.compare.scale import degenerate, scale
from omni_kit.parity.report.report import Worst
from omni_kit.toys.tensors import Tensors

# The same mathematics in another order of operations is a few float32 steps (2**-23) off: at most 24 in logits, losses
# and gradients of twenty models. One expert scaled by 1.01 is off by 30,000.
FLOAT32_TOLERANCE = 128 * torch.finfo(torch.float32).eps
# A model that magnifies rounding is allowed more: so many times what one step in each weight does to upstream itself.
_ROUNDINGS = 16
# But never so much that a fault could pass for rounding, be it that a nudge sent a token to another expert.
_MOST_MAGNIFIED = 1e-3
# A model that rounds to a lower precision inside does not magnify: it jumps, as far as most nudges move it. Another
# order of operations moves it up to 1.2 times as far as the median nudge, and one query projection scaled by 1.001
# moves 24 of 83 tensors twice as far as any nudge. A step of bfloat16 is the longest jump of this kind.
_JUMPS = 2
MOST_ROUNDING = torch.finfo(torch.bfloat16).eps
# A tensor far smaller than the largest of its group is mostly rounding (a key bias has no gradient at all in exact
# arithmetic), so it is judged by this share of the largest.
_FLOOR = 1e-3
# Random numbers hit some of a hundred thousand values of a ramp by chance.
_BY_CHANCE = 0.05


def compare_exactly(reference: Tensors, candidate: Tensors, steps: int = 0) -> Comparison:
    """Bit for bit; the reason of each difference says how the two are related, where they are.

    Args:
        steps: so many float32 steps of a tensor's largest element are still equal.
    """
    allowed = steps * torch.finfo(torch.float32).eps
    return _compare(reference, candidate, dict.fromkeys(reference, allowed), floor=0.0)


def compare_closely(reference: Tensors, candidate: Tensors, *nudged: Tensors, updates: int = 1) -> Comparison:
    """Up to rounding, relative to each tensor's own largest element.

    Args:
        nudged: what the reference gives when each of its weights is moved to the next float32 number. Where it is
            moved more than once, the median response counts, too.
        updates: so many passes made a tensor, each with weights that the one before rounded.

    Raises:
        NothingToCompare: the reference is not finite, or vanishes: anything would be as right as anything else.
    """
    if odd := next((name for name, tensor in reference.items() if not bool(tensor.isfinite().all())), None):
        raise NothingToCompare(f"upstream's own {odd} is not finite: so the toy tests nothing")
    if why := degenerate(reference):
        raise NothingToCompare(f"{why}: so the toy tests nothing")
    floor = _FLOOR * max((scale(tensor) for tensor in reference.values()), default=0.0)
    responses = {
        name: [_difference(name, tensor, moved[name], floor).max_rel for moved in nudged if name in moved]
        for name, tensor in reference.items()
    }
    found = _compare(reference, candidate, {name: _allowed(moved, updates) for name, moved in responses.items()}, floor)
    found.unsteady = sum(one.max_rel <= _ROUNDINGS * max(responses.get(one.name) or [0.0]) for one in found.worst)
    return found


def compare_up_to_rounding(
    reference: Tensors, candidate: Tensors, nudged: Tensors, again: Callable[[], Sequence[Tensors]], updates: int = 1
) -> Comparison:
    """Compare closely; where that fails by no more than rounding can do, measure rounding more often.

    A model that rounds to bfloat16 inside jumps where a number crosses a boundary, which few nudges make happen.

    Args:
        nudged, again, updates: as `compare_closely` takes; the other nudges are computed only where they are needed.
    """
    found = compare_closely(reference, candidate, nudged, updates=updates)
    if found.ok or found.missing or found.max_rel > MOST_ROUNDING:
        return found
    return compare_closely(reference, candidate, nudged, *again(), updates=updates)


def _allowed(responses: Sequence[float], updates: int) -> float:
    """Return how much a tensor may differ, given upstream's responses to one step in each weight."""
    if not all(map(math.isfinite, responses)):
        return updates * FLOAT32_TOLERANCE
    magnified = min(_ROUNDINGS * max(responses, default=0.0), _MOST_MAGNIFIED)
    jumped = min(_JUMPS * median(responses), MOST_ROUNDING) if len(responses) > 1 else 0.0
    return max(updates * FLOAT32_TOLERANCE, magnified, jumped)


def without_lone_zeros(tensors: Tensors, other: Tensors) -> Tensors:
    """`tensors` without those that are zero everywhere and that the other side does not have.

    A gradient of zeros and no gradient move a parameter equally little.
    """
    return {name: tensor for name, tensor in tensors.items() if name in other or bool(tensor.any())}


def _compare(reference: Tensors, candidate: Tensors, allowed: Mapping[str, float], floor: float) -> Comparison:
    result = names_compared(list(reference), list(candidate))
    for name in (name for name in reference if name in candidate):
        found = _difference(name, reference[name], candidate[name], floor)
        result.max_abs = max(result.max_abs, found.max_abs)
        tolerance = allowed.get(name, FLOAT32_TOLERANCE)
        wrong = not found.max_rel <= tolerance  # also where it is no number
        if (wrong, found.max_rel) >= (bool(result.worst), result.max_rel):
            result.max_rel, result.tolerance = found.max_rel, tolerance
        if wrong:
            result.worst.append(found)
    result.worst.sort(key=lambda worst: -worst.max_rel)
    return result


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
    size = max(scale(reference), floor)
    why = related(reference, candidate) if floor == 0.0 else ""
    return Worst(name, max_abs, max_abs / size if size else math.inf, why)


def related(reference: torch.Tensor, candidate: torch.Tensor) -> str:
    """Return how wrong values relate to the right ones, checking the most common mistakes first."""
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
