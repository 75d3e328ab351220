"""Compares how two models are initialised: by what chance lets through, for nobody draws the same numbers."""

import math
from collections.abc import Collection, Iterator

import torch

from omni_kit.toys.tensors import Tensors

# So many standard errors: of a hundred thousand right tensors not one is further off.
_SIGMAS = 6.0


def differently_begun(reference: Tensors, candidate: Tensors, buffers: Collection[str]) -> list[str]:
    """Return the tensors initialised differently from upstream's, in words; skip those that upstream leaves unset.

    Args:
        buffers: names of what is computed and not drawn.
    """
    shared = (name for name in reference if name in candidate and reference[name].shape == candidate[name].shape)
    return [f"{name} {why}" for name in shared for why in _why(name, reference[name], candidate[name], buffers)]


def _why(name: str, mine: torch.Tensor, other: torch.Tensor, buffers: Collection[str]) -> Iterator[str]:
    reference, candidate = mine.double().flatten(), other.double().flatten()
    if not bool(reference.isfinite().all()) or torch.equal(reference, candidate):
        return
    if not bool(candidate.isfinite().all()):
        yield "is not finite: uninitialised memory, or a division by zero"
    elif name in buffers:
        if not torch.allclose(reference, candidate, rtol=1e-5, atol=1e-7):
            yield "holds other numbers"
    elif _constant(reference) or _constant(candidate):
        yield f"begins as {_said(candidate)} instead of {_said(reference)}"
    elif _apart(reference, candidate):
        yield f"begins with {_said(candidate)} instead of {_said(reference)}"


def _constant(tensor: torch.Tensor) -> bool:
    return bool((tensor == tensor[0]).all())


def _apart(reference: torch.Tensor, candidate: torch.Tensor) -> bool:
    """Mean or spread are further apart than chance puts them, or other elements are exactly zero."""
    spread = float(reference.std())
    error = _SIGMAS * spread * math.sqrt(2 / reference.numel())
    moved = abs(float(reference.mean() - candidate.mean())) > error
    zeros = abs(int((reference == 0).sum()) - int((candidate == 0).sum())) > 1
    return moved or zeros or abs(spread - float(candidate.std())) > error


def _said(tensor: torch.Tensor) -> str:
    if _constant(tensor):
        return f"{float(tensor[0]):.4g} everywhere"
    return f"mean {float(tensor.mean()):.2g} and deviation {float(tensor.std()):.3g}"
