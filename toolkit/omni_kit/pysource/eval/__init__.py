"""The interpreter of Python: it goes through source and never runs it."""

from omni_kit.pysource.eval.domain import Domain
from omni_kit.pysource.eval.frame import Frame
from omni_kit.pysource.eval.values import UNKNOWN, Function, Native, Scope, Unreadable

__all__ = ["UNKNOWN", "Domain", "Frame", "Function", "Native", "Scope", "Unreadable"]
