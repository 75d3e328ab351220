"""What a config may call while it is read: the DSL, and functions that only look at plain values."""

import copy
import dataclasses
import inspect
import re
import string
import textwrap
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from omni_kit.patchgen import spec
from omni_kit.patchgen.reader.values import (
    COLLECTIONS,
    RECORDS,
    SCALARS,
    Native,
    Partial,
    Unreadable,
    bounded,
    plain,
)
from omni_kit.patchgen.standins import StandIn

_Functions = Mapping[str, Callable[..., Any]]


def _text(value: Any = "") -> str:
    if not isinstance(value, (str, int, float, bool, type(None))):
        raise Unreadable("makes a text of what is no plain value")
    return str(value)


def _items(value: Any = ()) -> list[Any]:
    if not isinstance(value, (str, *COLLECTIONS)):
        raise Unreadable("goes through what is no plain value")
    return list(value)


def _numbers(*bounds: int) -> list[int]:
    found = range(*bounds)
    if len(found) > 20_000:
        raise Unreadable("counts very far")
    return list(found)


def _joined(separator: str, parts: Any) -> str:
    texts = _items(parts)
    if sum(len(part) + len(separator) for part in texts) > 1_000_000:
        raise Unreadable("makes something very large")
    return separator.join(texts)


def _replaced(text: str, old: str, new: str, count: int = -1) -> str:
    if (len(text) + 1) * (len(new) + 1) > 10_000_000:
        raise Unreadable("makes something very large")
    return text.replace(old, new, count)


def _formatted(text: str, *arguments: Any, **named: Any) -> str:
    for _, name, style, conversion in string.Formatter().parse(text):
        if style or conversion or not (name or "a").isalnum():
            raise Unreadable("formats by more than names")
    if sum(len(_text(value)) for value in (*arguments, *named.values())) * (text.count("{") + 1) > 1_000_000:
        raise Unreadable("makes something very large")
    return text.format(*arguments, **named)


def multiplied(left: Any, right: Any) -> Any:
    """`left * right`, of numbers, or of a text or list of moderate length.

    Raises:
        Unreadable: it is something else, or grows large.
    """
    times, repeated = (left, right) if isinstance(left, int) else (right, left)
    sized = isinstance(repeated, (str, list, tuple)) and isinstance(times, int)
    if not (sized or (isinstance(left, (int, float)) and isinstance(right, (int, float)))):
        raise Unreadable("computes what is not read")
    if sized and len(repeated) * times > 20_000:
        raise Unreadable("makes something very large")
    return bounded(left * right)


def remainder(left: Any, right: Any) -> Any:
    """`left % right`, of numbers, or of a text and what stands for its `%s`.

    Raises:
        Unreadable: it is something else, or grows large.
    """
    if isinstance(left, (int, float)) and isinstance(right, (int, float)):
        return left % right
    values = right if isinstance(right, tuple) else (right,)
    if not isinstance(left, str) or re.sub("%[sd%]", "", left).count("%"):
        raise Unreadable("computes what is not read")
    if sum(len(_text(value)) for value in values) + len(left) > 1_000_000:
        raise Unreadable("makes something very large")
    return left % values


def _by_key(method: Callable[..., Any]) -> Callable[..., Any]:
    """The method, for arguments that are quick to hash: of a dict only the first one is a key."""

    def checked(base: Any, *arguments: Any) -> Any:
        plain(list(arguments[:1] if isinstance(base, dict) else arguments))
        return method(base, *arguments)

    return checked


def _itself(value: Any) -> Any:
    return value


BUILTINS: _Functions = {
    "abs": abs, "all": lambda x: all(plain(_items(x))), "any": lambda x: any(plain(_items(x))),
    "bool": lambda x=False: bool(plain(x)), "dict": lambda x=(), **more: dict(_pairs(x), **more),
    "enumerate": lambda x, start=0: list(enumerate(_items(x), start)), "float": lambda x=0: float(plain(x)),
    "frozenset": lambda x=(): frozenset(plain(_items(x))), "int": lambda x=0: int(plain(x)), "len": len,
    "list": _items, "max": lambda *x: max(*plain(x)), "min": lambda *x: min(*plain(x)),
    "print": lambda *_, **__: None, "range": _numbers, "reversed": lambda x: _items(x)[::-1],
    "set": lambda x=(): set(plain(_items(x))),
    "sorted": lambda x, reverse=False: sorted(plain(_items(x)), reverse=reverse), "str": _text,
    "sum": lambda x, start=0: sum(plain(_items(x)), start), "tuple": lambda x=(): tuple(_items(x)),
    "zip": lambda *x, strict=False: list(zip(*map(_items, x), strict=strict)),
    "getattr": getattr, "staticmethod": _itself, "classmethod": _itself, "property": _itself,
}  # fmt: skip
"""Of Python: those whose result depends on plain arguments alone, and `getattr`, which is read as a dot."""

LIBRARY: _Functions = {
    "textwrap.dedent": textwrap.dedent,
    "inspect.cleandoc": inspect.cleandoc,
    "copy.copy": copy.copy,
    "copy.deepcopy": copy.deepcopy,
    "dataclasses.replace": dataclasses.replace,
    "functools.partial": lambda function, *arguments, **keywords: Partial(function, arguments, keywords),
}
"""Of the standard library, by dotted name."""

CONSTANTS: Mapping[str, Any] = {"typing.TYPE_CHECKING": False, "typing_extensions.TYPE_CHECKING": False}

_TEXT: _Functions = {name: getattr(str, name) for name in (
    "capitalize", "count", "endswith", "find", "index", "isidentifier", "lower", "lstrip", "partition", "removeprefix",
    "removesuffix", "rpartition", "rsplit", "rstrip", "split", "splitlines", "startswith", "strip", "title", "upper",
)} | {"join": _joined, "replace": _replaced, "format": _formatted}  # fmt: skip
_METHODS: Mapping[type, _Functions] = {
    str: _TEXT,
    list: {name: getattr(list, name) for name in (
        "append", "clear", "copy", "extend", "insert", "pop", "reverse",
    )},
    dict: {name: _by_key(getattr(dict, name)) for name in ("get", "pop", "setdefault")}
    | {"update": lambda x, other=(), **more: x.update(_pairs(other), **more), "clear": dict.clear, "copy": dict.copy}
    | {"keys": list, "values": lambda x: list(x.values()), "items": lambda x: list(x.items())},
    set: {name: _by_key(getattr(set, name)) for name in (
        "add", "clear", "copy", "difference", "discard", "intersection", "remove", "union", "update",
    )},
}  # fmt: skip
DSL = {name: getattr(spec, name) for name in (
    "PatchConfig", "Patch", "PatchType", "ImportSpec", "PositionedHelper", "create_patch_from_external",
)}  # fmt: skip


def of_dsl(name: str) -> Any:
    """What the DSL's module offers under a name.

    Raises:
        Unreadable: nothing that a config may use.
    """
    if name == "patch_spec":
        return spec
    if name not in DSL:
        raise Unreadable(f"uses {name}, which the DSL does not have")
    return Native(DSL[name])


def attribute(base: Any, name: str) -> Any:
    """An attribute of a plain value or of an object of the DSL; a method is Native.

    Raises:
        Unreadable: it has none that a config may use.
    """
    if isinstance(base, Native) and base.function is spec.PatchType and name in spec.PatchType.__members__:
        return spec.PatchType[name]
    if isinstance(base, spec.PatchType) and name in {"name", "value"}:
        return getattr(base, name)
    if isinstance(base, RECORDS) and not name.startswith("_") and hasattr(base, name):
        found = getattr(base, name)
        return Native(found) if name not in fields(base) and callable(found) else found
    methods = _METHODS.get(type(base), {})
    if name in methods:
        return Native(partial(_applied, methods[name], base))
    raise Unreadable(f"uses {name} of {type(base).__name__}")


def _applied(method: Callable[..., Any], base: Any, *arguments: Any, **keywords: Any) -> Any:
    result = method(base, *arguments, **keywords)
    bounded(base)
    return result


def fields(record: Any) -> set[str]:
    """The names of the fields of an object of the DSL."""
    return {one.name for one in dataclasses.fields(record)}


def call(function: Callable[..., Any], arguments: list[Any], keywords: dict[str, Any]) -> Any:
    """Calls what is safe to call; a function that it gives back is safe, too.

    Raises:
        Unreadable: it refuses its arguments.
    """
    try:
        result = function(*arguments, **keywords)
    except Unreadable:
        raise
    except Exception as error:
        raise Unreadable(f"ends in {type(error).__name__}: {error}") from error
    known = (*SCALARS, *COLLECTIONS, *RECORDS, Native, Partial, StandIn)
    return Native(result) if callable(result) and not isinstance(result, known) else bounded(result)


def _pairs(value: Any) -> list[tuple[Any, Any]]:
    pairs = list(value.items()) if isinstance(value, dict) else [tuple(pair) for pair in _items(value)]
    plain([key for key, *_ in pairs])
    return pairs
