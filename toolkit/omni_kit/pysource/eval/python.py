"""Python's own operators, functions and methods on plain values: none of them runs long or makes something large."""

import ast
import inspect
import math
import operator
import re
import string
import textwrap
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import islice
from typing import Any

from omni_kit.pysource.eval.values import (
    MOST_ITEMS,
    VIEWS,
    Iterated,
    Native,
    Partial,
    Unsupported,
    bounded,
    is_iterable,
    iterated,
    plain,
)

_Functions = Mapping[str, Callable[..., Any]]
_MOST_DIGITS = 1000


def _text(value: Any = "") -> str:
    if not isinstance(value, (str, int, float, bool, type(None))):
        raise Unsupported("formats a value that is not plain data")
    return str(value)


def listed(value: Any = ()) -> list[Any]:
    """Return the items of a value.

    Raises:
        Unsupported: they are too many, or Python itself does not go through it.
    """
    found = list(islice(_iterated(value), MOST_ITEMS + 1))
    bounded(found)
    return found


def plain_items(value: Any) -> Any:
    """Return a value as a function of a domain takes it: an iterator, a view or a range as the list of its items."""
    return listed(value) if isinstance(value, (range, Iterated, *VIEWS)) else value


def _iterated(value: Any) -> Iterator[Any]:
    if not is_iterable(value):
        raise Unsupported("iterates over a value that is not plain data")
    return iterated(value)


def _range(*bounds: int) -> range:
    found = range(*bounds)
    if len(found) > MOST_ITEMS:
        raise Unsupported("counts very far")
    return found


def _reversed(value: Any) -> Iterated:
    if not isinstance(value, (str, bytes, list, tuple, range, dict, *VIEWS)):
        raise TypeError("cannot be reversed")
    return Iterated(iter(listed(value)[::-1]))


def _extreme(choose: Callable[..., Any], *values: Any, **options: Any) -> Any:
    return choose(plain(listed(values[0]) if len(values) == 1 else list(values)), **options)


def _rounded(number: Any, digits: Any = None) -> Any:
    if isinstance(digits, int) and abs(digits) > _MOST_DIGITS:
        raise Unsupported("rounds very far")
    return round(number, digits)


def _truth(value: Any = False) -> bool:
    return isinstance(value, Iterated) or bool(value)


def _joined(separator: str, parts: Any) -> str:
    texts = listed(parts)
    if sum(len(part) + len(separator) for part in texts) > 1_000_000:
        raise Unsupported("creates a very large value")
    return separator.join(texts)


def _replaced(text: str, old: str, new: str, count: int = -1) -> str:
    if (len(text) + 1) * (len(new) + 1) > 10_000_000:
        raise Unsupported("creates a very large value")
    return text.replace(old, new, count)


def _formatted(text: str, *arguments: Any, **named: Any) -> str:
    for _, name, style, conversion in string.Formatter().parse(text):
        if style or conversion or not (name or "a").isalnum():
            raise Unsupported("uses a format field other than a name")
    if sum(len(_text(value)) for value in (*arguments, *named.values())) * (text.count("{") + 1) > 1_000_000:
        raise Unsupported("creates a very large value")
    return text.format(*arguments, **named)


def _multiplied(left: Any, right: Any) -> Any:
    times, repeated = (left, right) if isinstance(left, int) else (right, left)
    sized = isinstance(repeated, (str, list, tuple)) and isinstance(times, int)
    if not (sized or (isinstance(left, (int, float)) and isinstance(right, (int, float)))):
        raise Unsupported("performs an unsupported computation")
    if sized and len(repeated) * times > 20_000:
        raise Unsupported("creates a very large value")
    return left * right


def _remainder(left: Any, right: Any) -> Any:
    if isinstance(left, (int, float)) and isinstance(right, (int, float)):
        return left % right
    values = right if isinstance(right, tuple) else (right,)
    if not isinstance(left, str) or re.sub("%[sd%]", "", left).count("%"):
        raise Unsupported("performs an unsupported computation")
    if sum(len(_text(value)) for value in values) + len(left) > 1_000_000:
        raise Unsupported("creates a very large value")
    return left % values


def _power(left: Any, right: Any) -> Any:
    if isinstance(left, int) and isinstance(right, int) and left.bit_length() * abs(right) > 128:
        raise Unsupported("creates a very large number")
    return left**right


def _shifted(left: int, right: int) -> int:
    if right > 128:
        raise Unsupported("creates a very large number")
    return left << right


def _is(left: Any, right: Any) -> bool:
    if any(value is None or value is ... or isinstance(value, (bool, list, dict, set)) for value in (left, right)):
        return left is right
    raise Unsupported("compares the identity of constants, which depends on the implementation")


# The operators of Python's syntax, by the name that Python's own `operator` has for them.
OPERATORS: Mapping[type[ast.AST], str] = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "truediv", ast.FloorDiv: "floordiv", ast.Mod: "mod",
    ast.Pow: "pow", ast.MatMult: "matmul", ast.BitAnd: "and_", ast.BitOr: "or_", ast.BitXor: "xor",
    ast.LShift: "lshift", ast.RShift: "rshift", ast.USub: "neg", ast.UAdd: "pos", ast.Invert: "invert",
    ast.Eq: "eq", ast.NotEq: "ne", ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge", ast.In: "in",
    ast.NotIn: "not in", ast.Is: "is_", ast.IsNot: "is_not",
}  # fmt: skip
_OWN: _Functions = {
    "mul": _multiplied, "mod": _remainder, "pow": _power, "lshift": _shifted, "in": lambda a, b: a in b,
    "not in": lambda a, b: a not in b, "is_": _is, "is_not": lambda a, b: not _is(a, b),
}  # fmt: skip
_COMPARED = frozenset({"eq", "ne", "lt", "le", "gt", "ge", "in", "not in"})


def operation(name: str, *operands: Any) -> Any:
    """Return the result of an operator of OPERATORS for plain values.

    Raises:
        Unsupported: the result is large, or comparing would take long.
    """
    if name in _COMPARED:
        for operand in operands:
            plain(listed(operand) if name in {"in", "not in"} and isinstance(operand, (dict, *VIEWS)) else operand)
    return bounded((_OWN.get(name) or getattr(operator, name))(*operands))


def _by_key(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return the method, for arguments that are quick to hash: of a dict only the first one is a key."""

    def checked(base: Any, *arguments: Any) -> Any:
        plain(list(arguments[:1] if isinstance(base, dict) else arguments))
        return method(base, *arguments)

    return checked


def _by_items(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return the method, for collections whose items are quick to hash."""

    def checked(base: Any, *arguments: Any) -> Any:
        return method(base, *(plain(listed(one)) for one in arguments))

    return checked


def _by_value(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return the method, for values that are quick to compare."""

    def checked(base: Any, *arguments: Any) -> Any:
        plain([*base, *arguments])
        return method(base, *arguments)

    return checked


def _pairs(value: Any) -> list[tuple[Any, Any]]:
    pairs = list(value.items()) if isinstance(value, dict) else [tuple(listed(pair)) for pair in listed(value)]
    plain([key for key, *_ in pairs])
    return pairs


_STYLE = re.compile(r"[<>=^]?[+-]?0?\d{0,3},?(\.\d{1,2})?[bdefgsxX%]?")


def formatted(value: Any, conversion: int = -1, style: str = "") -> str:
    """Return the text of a constant in a formatted string, by its conversion and format.

    Raises:
        Unsupported: the value is not a constant, or the format is not a common one.
    """
    if not isinstance(value, (str, int, float, bool, type(None))) or not _STYLE.fullmatch(style):
        raise Unsupported("uses a format field other than a name")
    return format(repr(value) if conversion == ord("r") else str(value) if conversion == ord("s") else value, style)


def _itself(value: Any) -> Any:
    return value


def _opaque(what: str) -> Callable[[Any], Any]:
    """Return a decorator that gives what is not followed here."""
    return lambda function: Unsupported(f"uses a {what}")


BUILTINS: _Functions = {
    "abs": abs, "all": lambda x: all(plain(listed(x))), "any": lambda x: any(plain(listed(x))),
    "bool": _truth, "dict": lambda x=(), **more: dict(_pairs(x), **more), "divmod": divmod,
    "enumerate": lambda x, start=0: Iterated(enumerate(_iterated(x), start)), "float": lambda x=0: float(plain(x)),
    "frozenset": lambda x=(): frozenset(plain(listed(x))), "int": lambda x=0: int(plain(x)), "len": len,
    "list": listed, "max": partial(_extreme, max), "min": partial(_extreme, min),
    "print": lambda *_, **__: None, "range": _range, "reversed": _reversed, "round": _rounded,
    "set": lambda x=(): set(plain(listed(x))), "slice": slice,
    "sorted": lambda x, reverse=False: sorted(plain(listed(x)), reverse=reverse), "str": _text,
    "sum": lambda x, start=0: sum(plain(listed(x)), start), "tuple": lambda x=(): tuple(listed(x)),
    "zip": lambda *x, strict=False: Iterated(zip(*map(_iterated, x), strict=strict)),
    "iter": lambda x: x if isinstance(x, Iterated) else Iterated(_iterated(x)),
    "repr": lambda x: formatted(x, ord("r")), "getattr": getattr, "hasattr": hasattr, "isinstance": isinstance,
    "staticmethod": _itself, "classmethod": _opaque("classmethod"), "property": _opaque("property"),
}  # fmt: skip
"""Functions whose result depends on plain arguments alone, and some that the interpreter and domains give a meaning."""

DESCRIPTORS = (BUILTINS["classmethod"], BUILTINS["property"])
"""Built-in decorators whose result is not followed."""

_MATH = """prod sqrt log log2 log10 log1p exp expm1 ceil floor cos sin tan atan atan2 tanh pow fabs trunc isclose isnan
isinf gcd hypot degrees radians"""
LIBRARY: _Functions = {
    "textwrap.dedent": textwrap.dedent,
    "inspect.cleandoc": inspect.cleandoc,
    "functools.partial": lambda function, *arguments, **keywords: Partial(function, arguments, keywords),
    **{f"math.{name}": getattr(math, name) for name in _MATH.split()},
}
"""Functions of the standard library, by dotted name."""

CONSTANTS: Mapping[str, Any] = {
    "typing.TYPE_CHECKING": False, "typing_extensions.TYPE_CHECKING": False, "math.pi": math.pi, "math.inf": math.inf,
    "math.e": math.e, "math.nan": math.nan,
}  # fmt: skip

_TEXT: _Functions = {name: getattr(str, name) for name in (
    "capitalize", "count", "endswith", "find", "index", "isdigit", "isidentifier", "lower", "lstrip", "partition",
    "removeprefix", "removesuffix", "rpartition", "rsplit", "rstrip", "split", "splitlines", "startswith", "strip",
    "title", "upper", "isalpha", "isalnum", "isupper", "islower", "isspace", "rfind", "rindex", "swapcase", "casefold",
)} | {"join": _joined, "replace": _replaced, "format": _formatted}  # fmt: skip
_METHODS: Mapping[type, _Functions] = {
    str: _TEXT,
    list: {name: getattr(list, name) for name in (
        "append", "clear", "copy", "insert", "pop", "reverse",
    )} | {"extend": lambda x, other: x.extend(listed(other))}
    | {name: _by_value(getattr(list, name)) for name in ("count", "index", "remove")}
    | {"sort": lambda x, reverse=False: plain(x).sort(reverse=reverse)},
    tuple: {name: _by_value(getattr(tuple, name)) for name in ("count", "index")},
    dict: {name: _by_key(getattr(dict, name)) for name in ("get", "pop", "setdefault")}
    | {"update": lambda x, other=(), **more: x.update(_pairs(other), **more), "clear": dict.clear, "copy": dict.copy}
    | {name: getattr(dict, name) for name in ("keys", "values", "items")},
    set: {name: _by_key(getattr(set, name)) for name in ("add", "clear", "copy", "discard", "remove")}
    | {name: _by_items(getattr(set, name)) for name in (
        "difference", "intersection", "isdisjoint", "issubset", "issuperset", "symmetric_difference", "union", "update",
    )},
    int: {"bit_length": int.bit_length}, float: {"is_integer": float.is_integer},
}  # fmt: skip


def method(base: Any, name: str) -> Native | None:
    """Return a method of a plain value; None if it has none that is known."""
    found = _METHODS.get(type(base), {}).get(name)
    return Native(partial(_applied, found, base)) if found is not None else None


def _applied(function: Callable[..., Any], base: Any, *arguments: Any, **keywords: Any) -> Any:
    result = function(base, *arguments, **keywords)
    bounded(base)
    return result
