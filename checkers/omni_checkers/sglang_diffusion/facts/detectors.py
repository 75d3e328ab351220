"""Determine whether a detector of a registration says yes to a name, without running it."""

import ast
from typing import Any

from omni_checkers.sglang_diffusion.facts.registering import Registration
from omni_kit.pysource.eval import Domain, Frame, Scope, Unsupported
from omni_kit.pysource.source import SourceFile


def detects(registration: Registration, name: str) -> bool:
    """Return whether one of the detectors says yes to a name in small letters; what cannot be followed says no."""
    listed = registration.given.get("model_detectors")
    return any(_says_yes(registration.source, item, name) for item in getattr(listed, "elts", []))


def _says_yes(source: SourceFile, detector: ast.expr, name: str) -> bool:
    frame = _frame(_Detectors(), source)
    try:
        return bool(frame.entered(frame.value(detector), [name], {}))
    except (Unsupported, AttributeError):
        return False


class _Detectors(Domain):
    """Texts alone; the home of a frame is its file, whose functions and constants may be used."""

    def name(self, name: str, frame: Frame) -> Any:
        """See `Domain`."""
        source: SourceFile = frame.home
        if (function := source.resolve_function(name)) is not None:
            return _frame(self, function[0]).written(function[1])
        if (constant := source.resolve_constant(name)) is not None:
            return _frame(self, constant[0]).value(constant[1])
        return super().name(name, frame)


def _frame(domain: Domain, source: SourceFile) -> Frame:
    return Frame(domain, source.path, source.module, Scope({}), source)
