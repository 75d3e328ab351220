"""The values of symbolic evaluation. Constants, lists, tuples, sets and dicts are themselves."""

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from omni_checkers.symbolic.program import Module
from omni_kit.pysource.eval import Frame, Function, Scope, Unsupported
from omni_kit.pysource.eval.values import Partial, is_plain

__all__ = [
    "UNKNOWN", "Bound", "Call", "Class", "Defaults", "Function", "Modelled", "Opaque", "Partial", "Raised", "Record",
    "Scope", "Symbol", "Value", "hashable", "is_constant", "is_key", "is_plain", "last_name", "show",
]  # fmt: skip

Value = Any


class Modelled:
    """A value that models a library object and its operations; UNKNOWN for the others."""

    def attribute(self, name: str) -> Value:
        """Return the value of an attribute; a method is bound where this is UNKNOWN."""
        return UNKNOWN

    def method(self, name: str, arguments: list[Value], keywords: dict[str, Value]) -> Value:
        """Return the result of a method."""
        return UNKNOWN

    def operation(self, name: str, operands: list[Value]) -> Value:
        """Return the result of an operator with it as one operand."""
        return UNKNOWN

    def item(self, key: Value) -> Value:
        """Return a part of it."""
        return UNKNOWN


class Raised(Unsupported):
    """The code raises, or would raise, on this path.

    Attributes:
        text: the exception as code writes it.
        module: where it is raised.
    """

    def __init__(self, text: str, frame: Frame) -> None:
        super().__init__(text)
        self.text = text
        self.module: Module | None = frame.home
        self.path, self.line = frame.path, getattr(frame.at, "lineno", 0)


@dataclass(frozen=True)
class Symbol:
    """Something outside the files that are read, by its absolute dotted name."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Opaque:
    """A value that is not known; the text says how it came about, and equal texts are the same value."""

    text: str

    def __str__(self) -> str:
        return self.text


UNKNOWN: Any = Opaque("UNKNOWN")
"""Placeholder for an unknown result; it never becomes a value of the code."""


@dataclass(frozen=True)
class Class:
    """A class of a file that is read. The same class is equal on every path."""

    module: Module
    node: ast.ClassDef = field(compare=False)
    name: str

    def __str__(self) -> str:
        return f"{self.module.name}.{self.name}"


@dataclass(eq=False)
class Call:
    """The result of calling something that is not executed: an instance, or what a library function returns."""

    function: Value
    args: tuple[Value, ...]
    kwargs: Mapping[str, Value]
    line: int = 0

    def argument(self, position: int, name: str) -> Value:
        """Return an argument given either way; None when it is not given."""
        return self.args[position] if len(self.args) > position else self.kwargs.get(name)

    def calls(self, name: str) -> bool:
        """Return whether the callee is a library symbol, or a class, of this last name."""
        return last_name(self.function) == name

    def __str__(self) -> str:
        shown = [show(arg) for arg in self.args] + [f"{key}={show(value)}" for key, value in self.kwargs.items()]
        return f"{show(self.function)}({', '.join(shown)})"


@dataclass(frozen=True, eq=False)
class Bound:
    """A method of a value that is not an instance of a class of the package."""

    owner: Value
    name: str

    def __str__(self) -> str:
        return f"{show(self.owner)}.{self.name}"


class Defaults(dict[Value, Value]):
    """collections.defaultdict with the factory that makes missing values."""

    def __init__(self, factory: Value) -> None:
        super().__init__()
        self.factory = factory


class Record:
    """A value whose attributes are known: reading one that it has not is an AttributeError, as at run time."""

    def __init__(self, name: str, attributes: Mapping[str, Value]) -> None:
        self.name = name
        self.attributes = attributes

    def attribute(self, name: str) -> Value:
        """Return the attribute.

        Raises:
            KeyError: it has none of that name.
        """
        return self.attributes[name]

    def __str__(self) -> str:
        return self.name


def show(value: Value) -> str:
    """Return a value as text; equal texts mean the same value on one path."""
    if is_constant(value):
        return repr(value)
    if isinstance(value, (list, tuple, set, frozenset)):
        return "[" + ", ".join([show(item) for item in value]) + "]"
    if isinstance(value, Partial):
        return f"partial({show(value.function)})"
    if isinstance(value, Mapping):
        return "{" + ", ".join([f"{show(key)}: {show(item)}" for key, item in value.items()]) + "}"
    return str(value)


def is_constant(value: Value) -> bool:
    """Return whether a value is a Python constant."""
    return value is None or isinstance(value, (str, bytes, int, float, complex))


def is_key(key: Value) -> bool:
    """Return whether a value is a key of a dict whose identity is known."""
    return is_constant(key) or (isinstance(key, tuple) and all(is_key(item) for item in key))


def hashable(key: Value) -> Value:
    """Return the value as a key of a dict or an element of a set; its text as Opaque where it cannot be one itself."""
    return key if is_key(key) or isinstance(key, (Opaque, Symbol, Class)) else Opaque(show(key))


def last_name(value: Value) -> str:
    """Return the last part of a symbol's, class's or function's name; empty for anything else."""
    if isinstance(value, (Symbol, Class, Function)):
        return str(value).rpartition(".")[2]
    return ""
