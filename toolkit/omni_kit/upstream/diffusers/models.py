"""A model of diffusers with the values of its config: the arguments of its class's constructor."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from omni_kit.errors import BadInput
from omni_kit.pysource.classes import ClassRef
from omni_kit.pysource.eval import UNKNOWN
from omni_kit.pysource.library import Library
from omni_kit.pysource.source import SourceFile
from omni_kit.upstream.diffusers.classes import find_class, is_model
from omni_kit.upstream.diffusers.signatures import Argument, arguments
from omni_kit.upstream.skeleton import Skeleton, build_from_arguments

# Layers are built one by one: far more than any model has, and few enough to be gone through.
_MOST_LAYERS = 1000
_MOST = 2**31


@dataclass(frozen=True)
class ComponentModel:
    """Class of diffusers for one config.

    Attributes:
        cls: the class, with the file that defines it.
        given: what config.json says, without the keys in which diffusers signs it.
    """

    library: Library
    cls: ClassRef
    given: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Identifier of the model: its class."""
        return self.cls.node.name

    @property
    def class_name(self) -> str:
        """The name of the class."""
        return self.cls.node.name

    @property
    def source(self) -> SourceFile:
        """The file that defines the class."""
        return self.cls.source

    @property
    def recipe(self) -> None:
        """diffusers changes nothing of its own checkpoints while it loads them."""

    @cached_property
    def arguments(self) -> Mapping[str, Argument]:
        """Arguments of the constructor, by name, in order."""
        return arguments(self.cls)

    def value(self, name: str) -> tuple[Any, str]:
        """Return an argument's value and where it was read; UNKNOWN without such an argument or a plain default."""
        if name in self.given and name in self.arguments:
            return self.given[name], f"config.json: {name}"
        argument = self.arguments.get(name)
        return (argument.default, argument.where) if argument is not None else (UNKNOWN, "")

    @cached_property
    def skeleton(self) -> Skeleton:
        """Names and shapes of the class's parameters, with this config."""
        return build_from_arguments(self.source, self.class_name, self.given)


def component_model(library: Library, class_name: str, values: Mapping[str, Any]) -> ComponentModel:
    """Return the model of a class with the values of its config.json.

    Raises:
        BadInput: the library has no such class, it is no model, or a value is none that the constructor could take.
    """
    cls = find_class(library, class_name)
    if cls is None:
        raise BadInput(
            f"{library.name} {library.version} has no class {class_name}", "pass another --diffusers, or a newer one"
        )
    if not is_model(cls):
        raise BadInput(
            f"{class_name} is not a model of {library.name}: {cls.source.where(cls.node)}",
            "pass a model, which has weights, or the whole pipeline",
        )
    given = {name: value for name, value in values.items() if not name.startswith("_")}
    model = ComponentModel(library, cls, given)
    for name, value in given.items():
        _check(model, name, value)
    return model


def _check(model: ComponentModel, name: str, value: Any) -> None:
    """Refuses what is neither what the constructor has by default, nor another number or list in its place."""
    argument = model.arguments.get(name)
    if argument is None:
        return
    default = argument.default
    if value is None and type(default) is int and name.startswith("num_"):
        raise BadInput(f"config.json: {name} is null, {model.class_name} has {default!r}", "correct config.json")
    if value is None:
        return
    numbers = isinstance(default, int | float | list | tuple) and not isinstance(default, bool)
    plain = value if isinstance(value, list | tuple) else [value]
    strings = isinstance(default, list | tuple) and any(isinstance(one, str) for one in default)
    if numbers and not strings and not all(isinstance(one, int | float) for one in plain):
        raise BadInput(f"config.json: {name} is {value!r}, {model.class_name} has {default!r}", "correct config.json")
    most = _MOST_LAYERS if name.endswith(("layers", "depth", "blocks")) else _MOST
    for number in plain:
        if isinstance(number, int | float) and not abs(number) <= most:  # what is not a number is not less either
            raise BadInput(f"config.json: {name} is {number}, not within {most}", "correct config.json")
