"""Verdicts on kernels and slots, from proofs and times."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from omni_kit.kernels.result import USABLE, KernelResult, SlotResult, Status
from omni_kit.kernels.search import DEFAULT, Found
from omni_kit.targets.sides import KernelChoice


def verdict(name: str, said: Mapping[str, Any]) -> KernelResult:
    """Return the verdict of a proof on a kernel."""
    if not said["calls"]:
        return KernelResult(name, "not called", reason="this model never calls it")
    errors = said["errors"]
    worst = max((float(error["kernel"]) for error in errors), default=None)
    wrong = [error for error in errors if not error["kernel"] <= error["allowed"]]
    if wrong:
        most = max(wrong, key=lambda error: float(error["kernel"]) / float(error["allowed"]))
        why = f"{most['what']} {_off(most)} ({most['told']})"
        return KernelResult(name, "wrong", max_rel=worst, reason=why)
    if said["unknown"]:
        return KernelResult(name, "unknown", max_rel=worst, reason=said["unknown"])
    if graphs := int(said["graphs"]):
        return KernelResult(name, "proven", max_rel=worst, graphs=graphs, first_step_s=round(said["seconds"], 1))
    return KernelResult(name, "proven", max_rel=worst)


def _off(error: Mapping[str, Any]) -> str:
    if not math.isfinite(float(error["kernel"])):
        return "is missing, of another shape or not finite"
    return f"is off by {error['kernel']:.1e}, the reference by {error['plain']:.1e}"


def slot_result(
    choice: KernelChoice, results: Sequence[KernelResult], found: Found, chosen: Mapping[str, str]
) -> SlotResult:
    """Return one slot with the measurements of its kernels."""
    start = found.choices[DEFAULT][choice.setting]
    timed = tuple(_timed(one, choice.setting, start, found) for one in results)
    matters = choice.setting in found.matters
    return SlotResult(choice.slot, choice.setting, choice.default, chosen[choice.setting], matters, timed)


def _timed(result: KernelResult, setting: str, start: str, found: Found) -> KernelResult:
    """With the figures of the choice that has this kernel, and everything else from the default."""
    name = DEFAULT if result.name == start else found.alone.get((setting, result.name), "")
    if (one := found.measured.get(name)) is not None and result.status in USABLE:
        return replace(result, ms=one.ms, gb=one.gb)
    if (why := found.broken.get(name)) is not None:
        status: Status = "failed"
        return replace(result, status=status, reason=why)
    return result


def untimed(choices: Sequence[KernelChoice], proven: Mapping[str, Sequence[KernelResult]]) -> list[SlotResult]:
    """Return the slots of a search whose default gave no time."""
    return [
        SlotResult(one.slot, one.setting, one.default, one.default, False, tuple(proven[one.setting]))
        for one in choices
    ]
