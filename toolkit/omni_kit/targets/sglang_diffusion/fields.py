"""Values of diffusers' configs as fields of a dataclass."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from omni_kit.pysource.eval import UNKNOWN

_TYPES = {bool: "bool", int: "int", float: "float", str: "str"}


@dataclass(frozen=True)
class Field:
    """A field of a dataclass as the templates write it."""

    name: str
    type: str
    value: str


def fields_of(values: Mapping[str, Any]) -> list[Field]:
    """Return the fields that have these values by default."""
    return [field_of(name, value) for name, value in values.items()]


def field_of(name: str, value: Any) -> Field:
    """Return one field; what is not known is None."""
    if value is UNKNOWN or value is None:
        return Field(name, "object", "None")
    if isinstance(value, dict):
        return Field(name, "dict", f"field(default_factory=lambda: {value!r})")
    if isinstance(value, (list, tuple)):
        return Field(name, "tuple", repr(frozen(value)))
    return Field(name, _TYPES.get(type(value), "object"), repr(value))


def frozen(value: Any) -> Any:
    """Lists as tuples, all the way down: a dataclass takes no list as a default."""
    return tuple(map(frozen, value)) if isinstance(value, (list, tuple)) else value
