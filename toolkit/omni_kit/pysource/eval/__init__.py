"""The interpreter of Python: it goes through source and never runs it."""

from omni_kit.pysource.eval.domain import Domain, OpenDomain
from omni_kit.pysource.eval.frame import Frame, evaluate
from omni_kit.pysource.eval.values import UNKNOWN, Exhausted, Function, Native, Scope, Unknown, Unsupported

__all__ = [
    "UNKNOWN", "Domain", "Exhausted", "Frame", "Function", "Native", "OpenDomain", "Scope", "Unknown", "Unsupported",
    "evaluate",
]  # fmt: skip
