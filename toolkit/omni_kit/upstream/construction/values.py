"""Values of a constructor's expressions other than plain Python values."""

import ast
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from omni_kit.pysource.classes import ClassRef
from omni_kit.pysource.eval import UNKNOWN
from omni_kit.pysource.source import SourceFile


@dataclass(frozen=True)
class Tensor:
    """A parameter or buffer; a dimension that could not be read is None, and so is a shape."""

    shape: tuple[int | None, ...] | None
    where: str = ""
    buffer: bool = False


@dataclass
class Module:
    """A module instance: attribute -> alternatives, one unless a condition could not be decided."""

    class_name: str
    attributes: dict[str, list[Any]] = field(default_factory=dict)
    uncertain: set[str] = field(default_factory=set)
    unresolved: dict[str, str] = field(default_factory=dict)
    pretrained: bool = False
    cls: ClassRef | None = None

    def items(self) -> list[Any]:
        """Return the elements of a list-like module."""
        return [alternatives[-1] for name, alternatives in self.attributes.items() if name.isdigit()]


class Config(ABC):
    """A config as a constructor sees it: an object with attributes, some of which it sets."""

    @property
    @abstractmethod
    def given(self) -> Mapping[str, Any]:
        """Values that were given, without the defaults of its class."""

    @property
    @abstractmethod
    def model_type(self) -> str:
        """Model type in the config."""

    @abstractmethod
    def model_class(self, source: SourceFile, name: str) -> "ClassRef | None":
        """Return the class that `name`, in a file, builds from this config: itself, or what an Auto class
        stands for.
        """

    @abstractmethod
    def get(self, name: str) -> Any:
        """Return the value of an attribute, UNKNOWN if it cannot be read."""

    @abstractmethod
    def has(self, name: str) -> bool:
        """Return whether there is such an attribute, be its value known or not."""

    @abstractmethod
    def set(self, name: str, value: Any, certain: bool) -> None:
        """Set an attribute; where it is not certain that it is set, its value becomes unknown."""

    @abstractmethod
    def make(self, cls: ClassRef, values: dict[str, Any]) -> "Config | None":
        """Return the config that calling another class of configs gives; None for any other class."""

    def method(self, name: str) -> tuple[ClassRef, ast.FunctionDef] | None:
        """Return a method that is run when it is called, with the class that defines it; None if none is."""
        return None

    def of_type(self, model_type: str, values: dict[str, Any]) -> "Config | None":
        """Return the config of a model_type of the library; None if it has none."""
        return None

    def of_class(self, path: str, values: dict[str, Any]) -> "Config | None":
        """Return the config of a class of the library, by its package and name; None if it has none."""
        return None

    @abstractmethod
    def copy(self) -> "Config":
        """Return a config of its own with the same values."""


class Arguments(Config):
    """The arguments of a constructor that keeps them as its config."""

    def __init__(self, class_name: str, values: Mapping[str, Any]) -> None:
        self._class_name = class_name
        self._values = dict(values)

    @property
    def given(self) -> Mapping[str, Any]:
        """See `Config`; nothing tells here what was given from what is so by default."""
        return self._values

    @property
    def model_type(self) -> str:
        """See `Config`; it is the class whose constructor it is."""
        return self._class_name

    def model_class(self, source: SourceFile, name: str) -> "ClassRef | None":
        """See `Config`; no class is chosen by such a config."""
        return None

    def get(self, name: str) -> Any:
        """See `Config`."""
        return self._values.get(name, UNKNOWN)

    def has(self, name: str) -> bool:
        """See `Config`."""
        return name in self._values

    def set(self, name: str, value: Any, certain: bool) -> None:
        """See `Config`."""
        self._values[name] = value if certain else UNKNOWN

    def make(self, cls: ClassRef, values: dict[str, Any]) -> "Config | None":
        """See `Config`; it makes none."""
        return None

    def copy(self) -> "Arguments":
        """See `Config`."""
        return Arguments(self._class_name, self._values)
