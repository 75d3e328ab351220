"""A small interpreter of `__init__` methods: values of configs, shapes of tensors, trees of modules.

Only what module constructors do is understood. Everything else becomes UNKNOWN, never a guess.
"""

from omni_kit.upstream.interpret.config import ConfigView
from omni_kit.upstream.interpret.frame import Interpreter
from omni_kit.upstream.interpret.values import UNKNOWN, Module, Tensor

__all__ = ["UNKNOWN", "ConfigView", "Interpreter", "Module", "Tensor"]
