"""Functions and methods outside of the package whose results are known."""

import ast
import re
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from omni_checkers.symbolic import tensors
from omni_checkers.symbolic.paths import Oracle
from omni_checkers.symbolic.program import Module
from omni_checkers.symbolic.tensors import NotATensor, Tiny
from omni_checkers.symbolic.values import (
    UNKNOWN,
    Bound,
    Call,
    Class,
    Defaults,
    Function,
    Modelled,
    Opaque,
    Partial,
    Raised,
    Record,
    Symbol,
    Value,
    hashable,
    is_constant,
    is_plain,
    show,
)
from omni_kit.pysource.eval import Frame, Unsupported, python

CONTAINERS = (list, tuple, dict, set, frozenset)
_REFUSED = (
    ArithmeticError, AttributeError, LookupError, TypeError, ValueError, re.error, NotATensor, Unsupported,
)  # fmt: skip
_COMPARED = frozenset({"eq", "ne", "lt", "le", "gt", "ge", "is_", "is_not", "in", "not in"})


class Path(Protocol):
    """The path that asks: what functions of a library do with functions and modules of the package."""

    oracle: Oracle

    def call(
        self, function: Value, arguments: list[Value], keywords: dict[str, Value], frame: Frame, node: ast.expr | None
    ) -> Value:
        """Return the result of a call."""

    def set_attribute(self, base: Value, name: str, value: Value, frame: Frame) -> None:
        """Set an attribute."""

    def module_named(self, module_name: str, name: str | None, frame: Frame) -> Value:
        """Return a module, or a name of it."""


def operation(name: str, operands: list[Value]) -> Value:
    """Return the result of an operator, or UNKNOWN."""
    modelled = next((one for one in operands if isinstance(one, Modelled)), None)
    if modelled is not None and (found := modelled.operation(name, operands)) is not UNKNOWN:
        return found
    if name in _COMPARED:
        return _compared(name, *operands)
    if name in {"or_", "and_", "sub"} and len(operands) == 2 and not all(isinstance(one, list) for one in operands):
        operands = [set(one) if isinstance(one, list) else one for one in operands]  # keys() is a list here
    return tried(python.operation, name, *operands) if all(map(is_plain, operands)) else UNKNOWN


def _compared(name: str, left: Value, right: Value) -> Value:
    same, other = name in {"is_", "eq"}, name in {"is_not", "ne"}
    if same or other:
        made = next((one for one in (left, right) if one is not None), None)
        own = isinstance(made, Call) and isinstance(made.function, Class)
        if (left is None or right is None) and (own or is_own(made) or isinstance(made, CONTAINERS)):
            return other
        if isinstance(left, Class) and isinstance(right, Class):
            return (left == right) == same
    within = name in {"in", "not in"} and isinstance(right, CONTAINERS)
    if not known(left) or not (all(map(known, right)) if within else known(right)):
        return UNKNOWN
    if name in {"is_", "is_not"}:
        return (left is right) == same
    if within:
        return (left in right) == (name == "in")
    return tried(python.operation, name, left, right)


def is_own(value: Value) -> bool:
    """Return whether a value is an object that is known to be there, and to be true."""
    return isinstance(value, (Function, Class, Module, Record, Partial, Bound, Tiny, re.Pattern, re.Match))


def known(value: Value) -> bool:
    """Return whether a value is made of constants alone."""
    if isinstance(value, dict):
        return all(known(item) for pair in value.items() for item in pair)
    return is_constant(value) or (isinstance(value, CONTAINERS) and all(map(known, value)))


def tried(function: Callable[..., Any], *args: Value, **kwargs: Value) -> Value:
    """Return a function's result for plain values; UNKNOWN if it raises."""
    try:
        return function(*args, **kwargs)
    except _REFUSED:
        return UNKNOWN


def call(path: "Path", name: str, args: list[Value], kwargs: dict[str, Value], frame: Frame) -> Value:
    """Calls a library function that is known, or gives UNKNOWN."""
    module, _, short = name.rpartition(".")
    if module == "builtins" or (module == "collections" and short in {"dict", "OrderedDict"}):
        return _builtin(path, "dict" if short == "OrderedDict" else short, args, kwargs, frame)
    if module == "torch":
        return tensor(short, args, kwargs)
    if module == "re" and short in {"compile", "match", "fullmatch", "search", "sub", "split", "findall"}:
        return (
            tried(getattr(re, short), *args)
            if args and all(isinstance(a, (str, re.Pattern)) for a in args)
            else UNKNOWN
        )
    if name == "collections.defaultdict":
        return Defaults(args[0] if args else None)
    if name == "functools.partial" and args:
        return Partial(args[0], tuple(args[1:]), kwargs)
    if name == "importlib.import_module" and args and isinstance(args[0], str):
        package = args[1] if len(args) > 1 else kwargs.get("package")
        relative = args[0].startswith(".")
        name = _resolved(args[0], package) if relative and isinstance(package, str) else args[0]
        return path.module_named(name, None, frame)
    return UNKNOWN


def tensor(name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Return the result of a torch function on labelled tensors, or UNKNOWN."""
    return tried(tensors.call, name, args, kwargs) if any(map(_labelled, (*args, *kwargs.values()))) else UNKNOWN


def _labelled(value: Value) -> bool:
    return isinstance(value, Tiny) or (isinstance(value, (list, tuple)) and any(isinstance(one, Tiny) for one in value))


def _resolved(name: str, package: str) -> str:
    level = len(name) - len(name.lstrip("."))
    parts = package.split(".")
    return ".".join([*parts[: len(parts) - level + 1], *([name[level:]] if name[level:] else [])])


def _builtin(path: "Path", name: str, args: list[Value], kwargs: dict[str, Value], frame: Frame) -> Value:
    match name, args:
        case "getattr", [owner, str(attribute), *default]:
            return _getattr(owner, attribute, default, frame)
        case "setattr", [owner, str(attribute), value]:
            return path.set_attribute(owner, attribute, value, frame)
        case "hasattr", [Record() as record, str(attribute)]:
            return tried(record.attribute, attribute) is not UNKNOWN
        case "isinstance", [Tiny(), kind]:
            return (isinstance(kind, Symbol) and kind.name in {"torch.Tensor", "torch.nn.Parameter"}) or UNKNOWN
        case "bool", [value]:
            return frame.is_true(value)
        case "len", [value] if isinstance(value, CONTAINERS):
            return len(value)
        case "any" | "all", [value] if isinstance(value, CONTAINERS):
            return (any if name == "any" else all)(map(frame.is_true, value))
        case "sorted", [value]:
            return _sorted(path, value, kwargs, frame)
        case "set" | "frozenset", [value] if isinstance(value, CONTAINERS):
            return {hashable(one) for one in value}
        case "dict", [] | [dict()]:
            return {**(args[0] if args else {}), **kwargs}
        case "zip", _:
            kwargs = {}
    if name in {"getattr", "hasattr", "isinstance", "staticmethod", "classmethod", "property", "sorted"}:
        return UNKNOWN
    if name in python.BUILTINS and all(map(is_plain, (*args, *kwargs.values()))):
        return python.plain_items(tried(python.BUILTINS[name], *args, **kwargs))
    return UNKNOWN


def _getattr(owner: Value, name: str, default: list[Value], frame: Frame) -> Value:
    """getattr: with a default, the default only where the attribute is known to be missing."""
    try:
        return frame.attribute(owner, name)
    except Raised as error:
        if default and error.text.startswith(("AttributeError", "ImportError")):
            return default[0]
        raise


def _sorted(path: "Path", items: Value, kwargs: dict[str, Value], frame: Frame) -> Value:
    """sorted(...), where the order is decided by constants: those of the keys, or the first of each pair."""
    if not isinstance(items, (*CONTAINERS, str)):
        return UNKNOWN
    values, key = list(items), kwargs.get("key")
    keys = values if key is None else [path.call(key, [value], {}, frame, None) for value in values]
    if not all(map(known, keys)):
        keys = [item[0] if isinstance(item, tuple) and item else item for item in keys]
        if not all(map(known, keys)) or len({repr(item) for item in keys}) != len(keys):
            return UNKNOWN
    pairs = sorted(range(len(values)), key=lambda number: keys[number], reverse=bool(kwargs.get("reverse", False)))
    return [values[number] for number in pairs]


def method(path: "Path", owner: Value, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """owner.name(...) for strings, containers and modelled values, or UNKNOWN."""
    if isinstance(owner, Modelled):
        return owner.method(name, args, kwargs)
    if isinstance(owner, (re.Pattern, re.Match)):
        return tried(getattr(owner, name), *args, **kwargs) if _constants(args) and hasattr(owner, name) else UNKNOWN
    if isinstance(owner, dict) and name in {"get", "pop", "setdefault"} and args:
        key, default = hashable(args[0]), (args[1] if len(args) > 1 else None)
        if key not in owner and isinstance(key, (Opaque, Symbol)):
            choices = [*owner.values(), default]
            return choices[path.oracle.choose(f"{show(key)} in {show(list(owner))}", len(choices))]
        raises = name == "pop" and len(args) == 1 and key not in owner
        return UNKNOWN if raises else getattr(owner, name)(key, default)
    if isinstance(owner, dict) and name == "update":
        return tried(owner.update, *args, **kwargs)
    if isinstance(owner, set) and name in {"add", "discard", "remove"}:
        args = [hashable(one) for one in args]
    if isinstance(owner, str) and not all(map(is_plain, (*args, *kwargs.values()))):
        return UNKNOWN
    if isinstance(owner, Defaults) and name in {"items", "keys", "values", "copy"}:
        owner = dict(owner)
    found = python.method(owner, name)
    return python.plain_items(tried(found.function, *args, **kwargs)) if found is not None else UNKNOWN


def _constants(values: Iterable[Value]) -> bool:
    return all(map(is_constant, values))
