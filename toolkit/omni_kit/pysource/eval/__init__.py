"""An interpreter of constructors: what `__init__` of a model's classes builds, without torch."""

from omni_kit.pysource.eval.classes import ClassRef
from omni_kit.pysource.eval.frame import Interpreter
from omni_kit.pysource.eval.values import UNKNOWN, Config, Module, Tensor

__all__ = ["UNKNOWN", "ClassRef", "Config", "Interpreter", "Module", "Tensor"]
