"""Grids of sigmas as numbers: what an expression gives for a number of steps."""

import ast
from pathlib import Path
from typing import Any

import numpy as np

from omni_kit.pysource.classes import ClassRef
from omni_kit.pysource.eval import Frame, OpenDomain, Scope, Unknown
from omni_kit.pysource.nodes import assigned, calls, returns
from omni_kit.pysource.source import dotted
from omni_kit.upstream.repositories.numbers import Numbers

STEPS = 10


def grid(node: ast.expr, function: ast.FunctionDef) -> list[float] | None:
    """Return the values of an expression of a function for STEPS steps; None if it cannot be read."""
    try:
        found = _Unset(_Steps(function), Path(), "", Scope({})).value(node)
        return [float(one) for one in found] if isinstance(found, (list, np.ndarray)) else None
    except Exception:  # whatever stands in the way of a value
        return None


class _Steps(Numbers):
    """Numbers of a function that is asked for STEPS steps."""

    def __init__(self, function: ast.FunctionDef) -> None:
        super().__init__()
        self.function = function

    def name(self, name: str, frame: Frame) -> Any:
        """See `Domain`: the first value assigned to a variable, or the number of steps."""
        values = [value for value in assigned(self.function, name) if dotted(value) != name]
        if values:
            return frame.value(values[0])
        return STEPS if "step" in name else OpenDomain.name(self, name, frame)

    def attribute(self, base: Any, name: str, frame: Frame) -> Any:
        """See `Domain`."""
        return STEPS if isinstance(base, Unknown) and "step" in name else super().attribute(base, name, frame)


class _Unset(Frame):
    """Code to which nobody gives sigmas."""

    def framed(self, *place: Any) -> "_Unset":
        """Return a frame for other code, of the same domain."""
        return _Unset(self.domain, *place)

    def of_ifexp(self, node: ast.IfExp) -> Any:
        """Return the branch for sigmas that are not given."""
        unset = isinstance(node.test, ast.Compare) and isinstance(node.test.ops[0], ast.Is)
        return self.value(node.body if unset else node.orelse)


def upstream_grid(pipeline: ClassRef) -> list[float] | None:
    """Return the sigmas that a pipeline of diffusers makes where nobody gives any."""
    found = pipeline.method("__call__")
    for value in assigned(found[1], "sigmas") if found is not None else ():
        if found is not None and (values := grid(value, found[1])) is not None:
            return values
    return None


def returned_grid(cls: ClassRef, method: str) -> list[float] | None:
    """Return the default sigmas that a method of a config computes; empty if it computes none."""
    found = cls.method(method)
    if found is None:
        return None
    for value in returns(found[1]):
        inner = next(iter(calls(value, "_prepare_sigmas")), None)
        if inner is not None:
            return returned_grid(cls, "_prepare_sigmas")
        if (values := grid(value, found[1])) is not None:
            return values
    only_passed = all(dotted(value) == "sigmas" for value in returns(found[1]))
    return [] if only_passed and not assigned(found[1], "sigmas") else None
