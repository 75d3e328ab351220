"""The values of symbolic execution. Constants, lists, tuples, sets and dicts are themselves."""

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from omni_checkers.symbolic.program import Module

Value = Any


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


@dataclass(eq=False)
class Function:
    """A function or lambda with the scope that it was defined in."""

    module: Module
    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
    closure: "Scope"
    bound: tuple[Value, ...] = ()

    @property
    def name(self) -> str:
        """The name that it was defined with; "<lambda>" for a lambda."""
        return getattr(self.node, "name", "<lambda>")

    def decorated(self, name: str) -> bool:
        """Whether it carries a decorator of this name."""
        decorators = getattr(self.node, "decorator_list", ())
        return any(isinstance(item, ast.Name) and item.id == name for item in decorators)

    def __str__(self) -> str:
        return f"{self.module.name}.{self.name}"


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
        """An argument given either way; None when it is not given."""
        return self.args[position] if len(self.args) > position else self.kwargs.get(name)

    def calls(self, name: str) -> bool:
        """Whether the callee is a library symbol, or a class, of this last name."""
        return last_name(self.function) == name

    def __str__(self) -> str:
        shown = [show(arg) for arg in self.args] + [f"{key}={show(value)}" for key, value in self.kwargs.items()]
        return f"{show(self.function)}({', '.join(shown)})"


@dataclass(frozen=True)
class Partial:
    """functools.partial, and bound methods."""

    function: Value
    args: tuple[Value, ...] = ()
    kwargs: tuple[tuple[str, Value], ...] = ()

    def __str__(self) -> str:
        return f"partial({show(self.function)})"


class Defaults(dict[Value, Value]):
    """collections.defaultdict with the factory that makes missing values."""

    def __init__(self, factory: Value) -> None:
        super().__init__()
        self.factory = factory


@dataclass
class Scope:
    """Names of a function or a module, and the scope around."""

    names: dict[str, Value] = field(default_factory=dict)
    outer: "Scope | None" = None

    def has(self, name: str) -> bool:
        """Whether this scope itself binds a name."""
        return name in self.names

    def find(self, name: str) -> "Scope | None":
        """The innermost scope that binds a name, this one or one around it; None without any."""
        scope: Scope | None = self
        while scope is not None and not scope.has(name):
            scope = scope.outer
        return scope


class LazyScope(Scope):
    """The names of a module whose statements are executed only when one of their names is asked for.

    Args:
        statements: name -> the top-level statements that bind it, in order.
        execute: executes statements among these names.
    """

    def __init__(
        self, statements: Mapping[str, Sequence[ast.stmt]], execute: Callable[[Sequence[ast.stmt]], None]
    ) -> None:
        super().__init__()
        self._pending = dict(statements)
        self._execute = execute

    def has(self, name: str) -> bool:
        """Whether the module binds a name; statements that bind it are executed first."""
        if name not in self.names and name in self._pending:
            self._execute(self._pending.pop(name))
        return name in self.names


class Record:
    """A value whose attributes are known: reading one that it has not is an AttributeError, as at run time."""

    def __init__(self, name: str, attributes: Mapping[str, Value]) -> None:
        self.name = name
        self.attributes = attributes

    def attribute(self, name: str) -> Value:
        """The attribute.

        Raises:
            KeyError: it has none of that name.
        """
        return self.attributes[name]

    def __str__(self) -> str:
        return self.name


def show(value: Value) -> str:
    """A value as text; equal texts mean the same value on one path."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{show(key)}: {show(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple, set, frozenset)):
        return "[" + ", ".join(show(item) for item in value) + "]"
    return repr(value) if is_plain(value) else str(value)


def is_plain(value: Value) -> bool:
    """Whether a value is a Python constant."""
    return value is None or isinstance(value, (str, bytes, int, float, complex))


def is_key(key: Value) -> bool:
    """Whether a value is a key of a dict whose identity is known."""
    return is_plain(key) or (isinstance(key, tuple) and all(is_key(item) for item in key))


def hashable(key: Value) -> Value:
    """The value as a key of a dict or an element of a set; its text as Opaque where it cannot be one itself."""
    return key if is_key(key) or isinstance(key, (Opaque, Symbol, Class)) else Opaque(show(key))


def last_name(value: Value) -> str:
    """The last part of a symbol's, class's or function's name; empty for anything else."""
    if isinstance(value, (Symbol, Class, Function)):
        return str(value).rpartition(".")[2]
    return ""
