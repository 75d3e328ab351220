"""Reads what Python code would do, without running it: values, one execution path, and all paths.

Rules judge by meaning. A class that is attached in a loop, through a helper or with `setattr` is attached all the same,
so a rule asks what a function does on each of its paths instead of looking for the way it is spelled.
"""

from omni_checkers.symbolic.evaluate import Evaluator, Outcome
from omni_checkers.symbolic.paths import Oracle, TooManyPaths, explore
from omni_checkers.symbolic.program import Module, Program
from omni_checkers.symbolic.values import Call, Class, Function, Opaque, Partial, Symbol

__all__ = [
    "Call",
    "Class",
    "Evaluator",
    "Function",
    "Module",
    "Opaque",
    "Oracle",
    "Outcome",
    "Partial",
    "Program",
    "Symbol",
    "TooManyPaths",
    "explore",
]
