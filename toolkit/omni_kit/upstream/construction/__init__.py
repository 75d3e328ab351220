"""An interpreter of constructors: what `__init__` of a model's classes builds, without torch."""

from omni_kit.upstream.construction.interpreter import Interpreter
from omni_kit.upstream.construction.values import Config, Module, Tensor

__all__ = ["Config", "Interpreter", "Module", "Tensor"]
