"""The built-in functions, operators and methods that symbolic execution knows."""

import ast
import operator as op
import re
from collections.abc import Callable, Iterable
from typing import Any

from omni_checkers.symbolic import tensors
from omni_checkers.symbolic.evaluation import Evaluation
from omni_checkers.symbolic.program import Module
from omni_checkers.symbolic.signals import Raised
from omni_checkers.symbolic.values import (
    Call,
    Class,
    Defaults,
    Function,
    Opaque,
    Partial,
    Record,
    Symbol,
    Value,
    hashable,
    is_plain,
    show,
)

UNKNOWN: Any = Opaque("UNKNOWN")
METHOD = Symbol("builtins.method")

_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: op.add, ast.Sub: op.sub, ast.Mult: op.mul, ast.FloorDiv: op.floordiv, ast.Div: op.truediv,
    ast.Mod: op.mod, ast.BitOr: op.or_, ast.BitAnd: op.and_,
}  # fmt: skip
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: op.eq, ast.NotEq: op.ne, ast.Lt: op.lt, ast.LtE: op.le, ast.Gt: op.gt, ast.GtE: op.ge,
    ast.Is: op.is_, ast.IsNot: op.is_not, ast.In: lambda a, b: a in b, ast.NotIn: lambda a, b: a not in b,
}  # fmt: skip
_CONTAINERS = (list, tuple, dict, set, frozenset)
_PURE: dict[str, Callable[..., Any]] = {
    "len": len, "str": str, "int": int, "bool": bool, "min": min, "max": max, "sum": sum, "range": range,
    "abs": abs, "repr": repr,
}  # fmt: skip
_REBUILD: dict[str, Callable[..., Any]] = {
    "list": list, "tuple": tuple, "dict": dict, "set": set, "frozenset": frozenset, "reversed": lambda x: list(x)[::-1],
    "enumerate": lambda *x: list(enumerate(*x)), "zip": lambda *x, **_: list(zip(*x, strict=False)), "iter": list,
}  # fmt: skip
_OWN_VALUES = (Function, Class, Module, Record, Partial, tensors.Tiny, re.Pattern, re.Match)


def binary(operator: ast.operator, left: Value, right: Value) -> Value:
    """left <operator> right, or UNKNOWN."""
    known = (is_plain(left) or isinstance(left, _CONTAINERS)) and (is_plain(right) or isinstance(right, _CONTAINERS))
    function = _BINARY.get(type(operator))
    if isinstance(operator, (ast.BitOr, ast.BitAnd, ast.Sub)) and isinstance(left, list) != isinstance(right, list):
        left, right = (set(item) if isinstance(item, list) else item for item in (left, right))  # keys() is a list here
    if not known or function is None:
        return UNKNOWN
    try:
        return function(left, right)
    except (TypeError, ValueError, ZeroDivisionError, KeyError):
        return UNKNOWN


def compare(operator: ast.cmpop, left: Value, right: Value) -> Value:
    """left <operator> right, or UNKNOWN."""
    same = isinstance(operator, (ast.Is, ast.Eq)), isinstance(operator, (ast.IsNot, ast.NotEq))
    if any(same) and (left is None or right is None):
        other = left if right is None else right
        made = isinstance(other, Call) and isinstance(other.function, Class)
        if made or isinstance(other, (*_OWN_VALUES, *_CONTAINERS)):
            return same[1]
    if any(same) and isinstance(left, Class) and isinstance(right, Class):
        return (left == right) == same[0]
    within = isinstance(operator, (ast.In, ast.NotIn)) and isinstance(right, _CONTAINERS)
    if not _known(left) or not (all(_known(item) for item in right) if within else _known(right)):
        return UNKNOWN
    try:
        return _COMPARE[type(operator)](left, right)
    except TypeError:
        return UNKNOWN


def _known(value: Value) -> bool:
    """Whether a value is made of constants alone."""
    if isinstance(value, dict):
        return all(_known(item) for pair in value.items() for item in pair)
    return is_plain(value) or (isinstance(value, _CONTAINERS) and all(_known(item) for item in value))


def call(evaluation: Evaluation, name: str, args: list[Value], kwargs: dict[str, Value], line: int) -> Value:
    """Calls a library function that is known, or gives UNKNOWN."""
    module, _, short = name.rpartition(".")
    if module == "builtins":
        return _builtin(evaluation, short, args, kwargs, line)
    if module == "torch":
        return _torch(short, args, kwargs)
    if name == "re.compile" and args and all(isinstance(arg, str) for arg in args):
        return _tried(re.compile, args, {})
    if module == "re" and short in {"match", "fullmatch", "search", "sub", "split", "findall"} and _strings(args):
        return _tried(getattr(re, short), args, {})
    if name == "collections.defaultdict":
        return Defaults(args[0] if args else None)
    if name == "functools.partial" and args:
        return Partial(args[0], tuple(args[1:]), tuple(kwargs.items()))
    if name == "importlib.import_module" and args and isinstance(args[0], str):
        package = args[1] if len(args) > 1 else kwargs.get("package")
        if args[0].startswith(".") and isinstance(package, str):
            return evaluation.imported(_resolve(args[0], package), None)
        return evaluation.imported(args[0], None)
    if short in {"dict", "OrderedDict"} and module == "collections" and len(args) <= 1:
        return _builtin(evaluation, "dict", args, kwargs, line)
    return UNKNOWN


def _strings(values: Iterable[Value]) -> bool:
    return all(isinstance(value, (str, re.Pattern)) for value in values)


def _torch(name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
    try:
        return tensors.function(name, args, kwargs)
    except tensors.NotATensor:
        return UNKNOWN


def _resolve(name: str, package: str) -> str:
    level = len(name) - len(name.lstrip("."))
    parts = package.split(".")
    return ".".join([*parts[: len(parts) - level + 1], *([name[level:]] if name[level:] else [])])


def _builtin(evaluation: Evaluation, name: str, args: list[Value], kwargs: dict[str, Value], line: int) -> Value:
    if name == "getattr" and len(args) >= 2 and isinstance(args[1], str):
        return _getattr(evaluation, args, line)
    if name == "setattr" and len(args) == 3 and isinstance(args[1], str):
        return evaluation.set_attribute(args[0], args[1], args[2], line)
    if name == "hasattr" and len(args) == 2 and isinstance(args[0], Record) and isinstance(args[1], str):
        return _has(args[0], args[1])
    if name == "isinstance" and len(args) == 2 and isinstance(args[0], tensors.Tiny):
        return (isinstance(args[1], Symbol) and args[1].name in {"torch.Tensor", "torch.nn.Parameter"}) or UNKNOWN
    if name == "bool" and len(args) == 1:
        return evaluation.truth(args[0])
    if name == "len" and len(args) == 1 and isinstance(args[0], _CONTAINERS):
        return len(args[0])
    if name in {"dict", "list", "set"} and not args and not kwargs:
        return {"dict": dict, "list": list, "set": set}[name]()
    if name in {"print", "super"}:
        return None if name == "print" else UNKNOWN
    if name in {"any", "all"} and len(args) == 1 and isinstance(args[0], (*_CONTAINERS, range)):
        return any(map(evaluation.truth, args[0])) if name == "any" else all(map(evaluation.truth, args[0]))
    if name == "sorted" and args:
        return _sorted(evaluation, args[0], kwargs)
    if name in _REBUILD and all(isinstance(arg, (*_CONTAINERS, range, str, int)) for arg in args):
        return _tried(_REBUILD[name], args, kwargs)
    if name in _PURE and all(_pure(arg) for arg in args) and not kwargs:
        return _tried(_PURE[name], args, kwargs)
    return UNKNOWN


def _sorted(evaluation: Evaluation, items: Value, kwargs: dict[str, Value]) -> Value:
    """sorted(...), where the order is decided by constants: those of the keys, or the first of each pair."""
    if not isinstance(items, (*_CONTAINERS, range, str)):
        return UNKNOWN
    values = list(items)
    key, backwards = kwargs.get("key"), kwargs.get("reverse", False)
    keys = values if key is None else [evaluation.call(key, [value], {}, None) for value in values]
    if not all(_known(item) for item in keys):
        keys = [item[0] if isinstance(item, tuple) and item else item for item in keys]
        if not all(_known(item) for item in keys) or len({repr(item) for item in keys}) != len(keys):
            return UNKNOWN
    pairs = sorted(range(len(values)), key=lambda number: keys[number], reverse=bool(backwards))
    return [values[number] for number in pairs]


def _tried(function: Callable[..., Any], args: list[Value], kwargs: dict[str, Value]) -> Value:
    try:
        return function(*args, **kwargs)
    except (ArithmeticError, LookupError, TypeError, ValueError, re.error):
        return UNKNOWN


def _pure(value: Value) -> bool:
    if isinstance(value, (list, tuple, set, frozenset)):
        return all(is_plain(item) for item in value)
    return is_plain(value) or isinstance(value, (dict, range))


def _has(owner: Record, name: str) -> bool:
    try:
        owner.attribute(name)
    except KeyError:
        return False
    return True


def _getattr(evaluation: Evaluation, args: list[Value], line: int) -> Value:
    """getattr: with a default, the default only where the attribute is known to be missing."""
    if len(args) == 2:
        return evaluation.attribute(args[0], args[1], line)
    try:
        return evaluation.attribute(args[0], args[1], line)
    except Raised as error:
        if error.text.startswith(("AttributeError", "ImportError")):
            return args[2]
        raise


def method(evaluation: Evaluation, owner: Value, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """owner.name(...) for strings and containers, or UNKNOWN."""
    if isinstance(owner, tensors.Tiny):
        return tensor(lambda: tensors.method(owner, name, args, kwargs))
    if isinstance(owner, (re.Pattern, re.Match)) and all(is_plain(arg) for arg in args) and hasattr(owner, name):
        return _tried(getattr(owner, name), args, kwargs)
    if isinstance(owner, str):
        known = all(_pure(arg) for arg in (*args, *kwargs.values()))
        return _tried(getattr(owner, name), args, kwargs) if known and hasattr(owner, name) else UNKNOWN
    if isinstance(owner, dict):
        return _dict_method(evaluation, owner, name, args, kwargs)
    if isinstance(owner, list) and name in {"append", "extend", "insert", "pop", "copy", "index", "reverse"}:
        return _tried(getattr(owner, name), args, kwargs)
    if isinstance(owner, set) and name in {"add", "discard", "remove"}:
        return _tried(getattr(owner, name), [hashable(arg) for arg in args], kwargs)
    return UNKNOWN


def tensor(made: Callable[[], Value]) -> Value:
    """The result of a tensor operation; Opaque for one that is not known."""
    try:
        return made()
    except tensors.NotATensor as error:
        return Opaque(f"tensor({error})")


def _dict_method(
    evaluation: Evaluation, owner: dict[Any, Value], name: str, args: list[Value], kwargs: dict[str, Value]
) -> Value:
    if name in {"items", "keys", "values"}:
        return list(getattr(owner, name)())
    if name == "copy":
        return dict(owner)
    if name == "update":
        return _tried(owner.update, args, kwargs)
    if name in {"get", "pop", "setdefault"} and args:
        key, default = hashable(args[0]), (args[1] if len(args) > 1 else None)
        if key in owner or not isinstance(key, (Opaque, Symbol)):
            raises = name == "pop" and len(args) == 1 and key not in owner
            return UNKNOWN if raises else getattr(owner, name)(key, default)
        choices = [*owner.values(), default]
        return choices[evaluation.oracle.choose(f"{show(key)} in {show(list(owner))}", len(choices))]
    return UNKNOWN


__all__ = ["METHOD", "UNKNOWN", "binary", "call", "compare", "method", "tensor"]
