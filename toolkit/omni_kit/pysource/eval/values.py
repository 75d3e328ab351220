"""Values of expressions other than plain Python values and the values of a domain."""

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from inspect import Signature
from pathlib import Path
from typing import Any

from omni_kit.pysource.signatures import signature

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda
SCALARS = (str, bytes, int, float, complex, bool, range, type(None), type(...))
VIEWS: tuple[type, ...] = (type({}.keys()), type({}.values()), type({}.items()))
COLLECTIONS = (list, tuple, dict, set, frozenset)
_PARTS = (*SCALARS, *COLLECTIONS)
_PLAIN = (*_PARTS, slice)
_PLAIN_TYPES = frozenset(_PLAIN)  # nearly every plain value is exactly of one of them
_SIZED = (str, bytes, range, *COLLECTIONS)
MOST_ITEMS = 20_000
_MAX_TEXT, _MAX_BITS, _MAX_PARTS = 1_000_000, 128, 20_000


@dataclass(frozen=True)
class Unknown:
    """A value that the source does not tell.

    Attributes:
        name: the dotted name that leads to it; empty if no name does.
    """

    name: str = ""

    def __repr__(self) -> str:
        return self.name or "UNKNOWN"

    def __deepcopy__(self, memo: object) -> "Unknown":
        """Itself: code compares it by identity."""
        return self


UNKNOWN: Any = Unknown()
"""A value that the source does not determine."""


class Unsupported(Exception):
    """Something whose value or effect cannot be determined without running it; the message says what.

    Attributes:
        path, line: where it stands; None until that is known.
    """

    path: Path | None = None
    line: int | None = None


class Exhausted(Unsupported):
    """The budget of an evaluation is spent."""


@dataclass
class Scope:
    """Names and their values, and the scope around them.

    Attributes:
        kind: "class" and "comprehension" have rules of their own.
    """

    names: dict[str, Any]
    outer: "Scope | None" = None
    kind: str = ""

    def holder(self, name: str) -> "Scope | None":
        """Return the innermost scope that has a name."""
        scope: Scope | None = self
        while scope is not None and name not in scope.names:
            scope = scope.outer
        return scope

    def enclosing(self) -> "Scope":
        """Return the scope that functions defined here see: the body of a class is none of theirs."""
        return self.outer if self.kind == "class" and self.outer is not None else self

    def assigned(self) -> "Scope":
        """Return the scope that `name := value` assigns in: no comprehension's."""
        return self.outer.assigned() if self.kind == "comprehension" and self.outer is not None else self


@dataclass(eq=False)
class Function:
    """A function, class or lambda, where it is written.

    Attributes:
        home: what the domain requires to know while its body is gone through.
        scope: where its body looks for names.
        members: what the body of a class defines.
        defaults: the values of a function's parameters that have one; an Unsupported for one that cannot be determined.
        bases: what a class inherits from.
        bound: arguments that come before those of a call: the object whose method it is.
    """

    node: Definition
    path: Path
    module: str
    scope: Scope
    home: Any = None
    members: dict[str, Any] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    bases: Sequence[Any] = ()
    bound: tuple[Any, ...] = ()

    def __post_init__(self) -> None:
        self.__name__ = self.__qualname__ = getattr(self.node, "name", "<lambda>")
        self.__module__ = self.module

    @property
    def signature(self) -> Signature:
        """The signature of a function or lambda."""
        assert not isinstance(self.node, ast.ClassDef)
        return signature(self.node)

    def __repr__(self) -> str:
        return f"{self.module}.{self.__name__}"

    def __deepcopy__(self, memo: object) -> "Function":
        """Itself: what is copied refers to the same definitions."""
        return self


@dataclass(frozen=True, eq=False)
class Iterated:
    """An iterator of Python's: it can be gone through once."""

    iterator: Iterator[Any]

    def __deepcopy__(self, memo: object) -> "Iterated":
        """Itself: an iterator cannot be copied."""
        return self


@dataclass(frozen=True, eq=False)
class Native:
    """A function of Python that is safe to call on plain values, or one that a domain vouches for."""

    function: Callable[..., Any]


@dataclass(frozen=True, eq=False)
class Partial:
    """`functools.partial`: a callable with some of its arguments."""

    function: Any
    arguments: tuple[Any, ...]
    keywords: Mapping[str, Any]


_ITERABLE = (*_SIZED, *VIEWS, Iterated)


def is_plain(value: Any) -> bool:
    """Return whether a value is Python's own; what a collection holds is not looked at."""
    return type(value) in _PLAIN_TYPES or isinstance(value, _PLAIN)


def is_iterable(value: Any) -> bool:
    """Return whether Python itself can go through a value of its own."""
    return isinstance(value, _ITERABLE)


def iterated(value: Any) -> Iterator[Any]:
    """Return the items of such a value."""
    return value.iterator if isinstance(value, Iterated) else iter(value)


def bounded(value: Any) -> Any:
    """Return a value, unless it is larger than anything that is gone through.

    Raises:
        Unsupported: it is.
    """
    if isinstance(value, _SIZED):
        if len(value) > (_MAX_TEXT if isinstance(value, (str, bytes)) else MOST_ITEMS):
            raise Unsupported("creates a very large value")
    elif isinstance(value, int) and value.bit_length() > _MAX_BITS:
        raise Unsupported("creates a very large number")
    return value


def plain(value: Any) -> Any:
    """Return a value, if it consists of a moderate number of plain parts, so that comparing and hashing it is quick.

    Raises:
        Unsupported: it does not.
    """
    pending, seen = [value], 0
    while pending:
        item = pending.pop()
        seen += 1
        if seen > _MAX_PARTS or not isinstance(item, _PARTS):
            raise Unsupported("compares or collects a value that is not plain data")
        if isinstance(item, COLLECTIONS):
            pending += [*item.keys(), *item.values()] if isinstance(item, dict) else item
    return value
