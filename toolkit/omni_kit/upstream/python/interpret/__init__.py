"""An interpreter of constructors: what `__init__` of a model's classes builds, without torch."""

from omni_kit.upstream.python.interpret.classes import ClassRef
from omni_kit.upstream.python.interpret.frame import Interpreter
from omni_kit.upstream.python.interpret.values import UNKNOWN, Config, Module, Tensor

__all__ = ["UNKNOWN", "ClassRef", "Config", "Interpreter", "Module", "Tensor"]
