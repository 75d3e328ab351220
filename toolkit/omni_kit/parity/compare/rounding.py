"""Judges where a module rounds: fed what upstream's was fed in a low dtype, it gives the same bits.

What was added up in another order may differ in a few of the last bits. A cast that moved differs in many elements, and
shows in what the module computed in which dtype; that both are so tells it from a harmless rewrite.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from omni_kit.parity.compare.trace import ModuleCall

# Additions in another order change fewer of the rounded numbers; a rounding more or less changes a fifth or more.
_SHARE = 0.02
ENOUGH = 50  # of fewer numbers, a single one is more than that
# What float32 results may differ by: less than a rounding to bfloat16 on the way makes.
_FINE = 2.0**-13
_SUM, _CAST = "sum ", "to "


@dataclass(frozen=True)
class Rounding:
    """Difference of one module call from upstream's in a low dtype.

    Attributes:
        compared: how many numbers were.
        differing: how many of them differ.
        ulps: the largest difference, in last places of the dtype at the size of the tensor's largest number.
        wrong: what is wrong, in words; empty for nothing.
    """

    module: str
    compared: int
    differing: int
    ulps: float
    wrong: str = ""


def rounding(
    reference: ModuleCall, candidate: ModuleCall, outputs: Mapping[str, tuple[torch.Tensor, torch.Tensor]], dtype: str
) -> Rounding:
    """Compare what both modules answered to the same inputs.

    Args:
        outputs: name -> upstream's and the candidate's.
        dtype: in which both ran.
    """
    name = reference.module or "the model"
    compared = differing = 0
    ulps = 0.0
    for what, (mine, theirs) in outputs.items():
        if mine.dtype != theirs.dtype:
            said = f"{name} returns {_word(theirs.dtype)}{f' as {what}' if what else ''}, upstream {_word(mine.dtype)}"
            return Rounding(name, mine.numel(), mine.numel(), 0.0, said)
        off = (theirs.double() - mine.double()).abs()
        size = mine.double().abs()
        changed = off > (0.0 if _word(mine.dtype) == dtype else _FINE) * size
        compared, differing = compared + mine.numel(), differing + int(changed.sum())
        eps = torch.finfo(getattr(torch, dtype)).eps
        if mine.numel() and float(size.max()):
            ulps = max(ulps, float(off.max() / size.max()) / eps)
    wrong = ""
    if compared and differing > _SHARE * compared and _sums(reference) == _sums(candidate):
        wrong = _moved(
            reference, candidate, f"{name} rounds elsewhere than upstream ({differing} of {compared} numbers"
        )
    return Rounding(name, compared, differing, ulps, wrong)


def _moved(reference: ModuleCall, candidate: ModuleCall, said: str) -> str:
    """Return operations computed in another dtype, or cast at another place; empty if there are none."""
    mine, theirs = (
        {what: count for what, count in call.operations.items() if not what.startswith(_SUM)}
        for call in (reference, candidate)
    )
    kinds = [what for what in sorted({*mine, *theirs}) if mine.get(what, 0) != theirs.get(what, 0)]
    if not kinds:
        return ""
    counts = ", ".join(f"{theirs.get(kind, 0)} {_named(kind)}, upstream {mine.get(kind, 0)}" for kind in kinds)
    return f"{said} differ): {counts}"


def _named(kind: str) -> str:
    return f"casts {kind}" if kind.startswith(_CAST) else f"operations in {kind}"


def _sums(call: ModuleCall) -> dict[str, int]:
    return {what: count for what, count in call.operations.items() if what.startswith(_SUM)}


def _word(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
