"""The Pareto front: measured choices that no other beats in both time and memory."""

from collections.abc import Mapping

from omni_kit.kernels.timing import Measured


def pareto(measured: Mapping[str, Measured]) -> list[str]:
    """Return the names of the front, fastest first; of those that are alike in both, the first one stands for all."""
    kept: list[str] = []
    for name in sorted(measured, key=lambda name: (measured[name].ms, measured[name].gb)):
        if not kept or measured[name].gb < measured[kept[-1]].gb:
            kept.append(name)
    return kept
