"""What names in a config stand for while it is read, besides plain values, stand-ins and objects of the DSL."""

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from omni_kit.patchgen.spec import ImportSpec, Origin, Patch, PatchConfig, PositionedHelper
from omni_kit.patchgen.standins import StandIn

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda
SCALARS = (str, bytes, int, float, complex, bool, type(None), type(...))
COLLECTIONS = (list, tuple, dict, set, frozenset)
RECORDS = (PatchConfig, Patch, ImportSpec, PositionedHelper)
_MAX_TEXT, _MAX_ITEMS, _MAX_BITS, _MAX_PARTS = 1_000_000, 20_000, 128, 20_000


class Unreadable(Exception):
    """Something in a config whose effect cannot be told without running it; the message says what.

    Attributes:
        origin: the file and line where it stands; None until that is known.
    """

    origin: Origin | None = None


@dataclass
class Scope:
    """Names and their values, and the scope around them."""

    names: dict[str, Any]
    outer: "Scope | None" = None
    is_class: bool = False

    def holder(self, name: str) -> "Scope | None":
        """The innermost scope that has a name."""
        scope: Scope | None = self
        while scope is not None and name not in scope.names:
            scope = scope.outer
        return scope

    def enclosing(self) -> "Scope":
        """The scope that functions defined here see: the body of a class is none of theirs."""
        return self.outer if self.is_class and self.outer is not None else self


@dataclass(eq=False)
class Written:
    """A function, class or lambda of a config, where it is written.

    Attributes:
        scope: where its body looks for names.
        members: what the body of a class defines.
        defaults: the values of a function's parameters that have one; an Unreadable for one that cannot be told.
        bases: what a class inherits from.
    """

    node: Definition
    path: Path
    module: str
    scope: Scope
    members: dict[str, Any] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    bases: Sequence[Any] = ()

    def __post_init__(self) -> None:
        self.__name__ = self.__qualname__ = getattr(self.node, "name", "<lambda>")
        self.__module__ = self.module

    def __deepcopy__(self, memo: object) -> "Written":
        """Itself: a copy of a config replaces the same definitions."""
        return self


@dataclass(frozen=True, eq=False)
class Native:
    """A function that is safe to call: of the DSL, or of Python on plain values."""

    function: Callable[..., Any]


@dataclass(frozen=True, eq=False)
class Partial:
    """`functools.partial`: a callable with some of its arguments."""

    function: Any
    arguments: tuple[Any, ...]
    keywords: Mapping[str, Any]


def is_live(value: Any) -> bool:
    """Whether a value can be used to change a config, be it inside a collection."""
    pending, seen = [value], 0
    while pending:
        item = pending.pop()
        seen += 1
        if isinstance(item, (*RECORDS, Native, Partial)) or seen > _MAX_PARTS:
            return True
        if isinstance(item, COLLECTIONS):
            pending += [*item.keys(), *item.values()] if isinstance(item, dict) else item
    return False


def bounded(value: Any) -> Any:
    """A value, unless it is larger than anything that a config needs.

    Raises:
        Unreadable: it is.
    """
    size = len(value) if isinstance(value, (str, bytes, *COLLECTIONS)) else 0
    if size > (_MAX_TEXT if isinstance(value, (str, bytes)) else _MAX_ITEMS):
        raise Unreadable("makes something very large")
    if isinstance(value, int) and value.bit_length() > _MAX_BITS:
        raise Unreadable("makes a very large number")
    return value


def plain(value: Any) -> Any:
    """A value, if it consists of a moderate number of plain parts, so that comparing and hashing it is quick.

    Raises:
        Unreadable: it does not.
    """
    pending, seen = [value], 0
    while pending:
        item = pending.pop()
        seen += 1
        if isinstance(item, StandIn):
            raise Unreadable(f"needs the value of {item.path}")
        if seen > _MAX_PARTS or not isinstance(item, (*SCALARS, *COLLECTIONS)):
            raise Unreadable("compares or collects what is no plain value")
        if isinstance(item, COLLECTIONS):
            pending += [*item.keys(), *item.values()] if isinstance(item, dict) else item
    return value
