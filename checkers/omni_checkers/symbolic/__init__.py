"""Reads what Python code would do, without running it: values, one execution path, and all paths.

Rules judge by meaning. A class that is attached in a loop, through a helper or with `setattr` is attached all the same,
so a rule asks what a function does on each of its paths instead of looking for the way it is spelled. The interpreter
is `omni_kit.pysource.eval`; here is the domain of its values.
"""

from omni_checkers.symbolic.evaluator import Effect, Evaluator, Outcome, Stored
from omni_checkers.symbolic.paths import Oracle, explore
from omni_checkers.symbolic.program import Module, Program
from omni_checkers.symbolic.values import (
    UNKNOWN,
    Bound,
    Call,
    Class,
    Function,
    Modelled,
    Opaque,
    Partial,
    Raised,
    Record,
    Scope,
    Symbol,
    Value,
    hashable,
    last_name,
    show,
)
from omni_kit.pysource.eval import Exhausted

__all__ = [
    "UNKNOWN", "Bound", "Call", "Class", "Effect", "Evaluator", "Exhausted", "Function", "Modelled", "Module", "Opaque",
    "Oracle", "Outcome", "Partial", "Program", "Raised", "Record", "Scope", "Stored", "Symbol", "Value", "explore",
    "hashable", "last_name", "show",
]  # fmt: skip
