"""Works out functions of numbers, such as a schedule of noise, from their source: nothing is run."""

import ast
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from omni_kit.pysource.eval import UNKNOWN, Frame, Native, OpenDomain, Scope, Unknown, Unsupported, evaluate
from omni_kit.pysource.eval.python import BUILTINS, CONSTANTS, LIBRARY, plain_items
from omni_kit.pysource.eval.values import is_plain
from omni_kit.pysource.source import SourceFile
from omni_kit.upstream.repositories.names import resolve

_MOST = 4096
_PLACES = frozenset({"shape", "device", "dtype", "ndim"})
_LISTED = frozenset({"len", "min", "max", "sum", "list", "tuple", "zip", "enumerate", "reversed", "sorted"})
_AXES = frozenset({"dim", "dims", "axis"})
_ARGUMENTS = {"steps": "count", "num": "count", "min": "low", "a_min": "low", "max": "high", "a_max": "high"}


def _whole(value: Any) -> Any:
    return np.trunc(value).astype(int)


def _sized(count: int) -> int:
    if not 0 <= count <= _MOST:
        raise Unsupported("creates a very large value")
    return count


def _linspace(start: float, stop: float, count: int, endpoint: bool = True) -> Any:
    return np.linspace(start, stop, _sized(count), endpoint=endpoint)


def _arange(*bounds: float) -> Any:
    start, stop, step = (0, *bounds, 1) if len(bounds) == 1 else (*bounds, 1)[:3]
    _sized(math.ceil(abs(stop - start) / abs(step)))
    return np.arange(start, stop, step)


def _clipped(value: Any, low: Any = None, high: Any = None) -> Any:
    return value if low is None and high is None else np.clip(value, low, high)


def _filled(number: float, *shape: Any) -> Any:
    """Return a vector of a known length; of a tensor of another shape, one element."""
    length = [one for one in shape if isinstance(one, int | np.ndarray)]
    return np.full(_sized(int(np.asarray(length[0]).item())), number) if len(shape) == len(length) == 1 else number


def _same(value: Any, *_: Any) -> Any:
    return value


_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    **{name: getattr(np, name) for name in (
        "exp", "log", "sqrt", "cos", "sin", "tan", "arctan", "abs", "expm1", "log1p", "square", "tanh", "floor", "ceil",
        "round", "minimum", "maximum", "append", "concatenate", "hstack",
    )},
    **dict.fromkeys((
        "to", "clone", "detach", "cpu", "numpy", "item", "contiguous", "astype", "type", "copy", "tensor", "as_tensor",
        "array", "asarray", "from_numpy", "FloatTensor",
    ), _same),
    **dict.fromkeys(("float", "double"), lambda x: np.asarray(x, float)), **dict.fromkeys(("long", "int"), _whole),
    **dict.fromkeys(("cat", "concat"), np.concatenate), **dict.fromkeys(("clamp", "clip"), _clipped),
    "atan": np.arctan, "sigmoid": lambda x: 1 / (1 + np.exp(-x)), "rsqrt": lambda x: x**-0.5,
    "flip": lambda x, *_: np.flip(x), "cumprod": lambda x, *_: np.cumprod(x), "cumsum": lambda x, *_: np.cumsum(x),
    "linspace": _linspace, "arange": _arange, "zeros": partial(_filled, 0.0), "ones": partial(_filled, 1.0),
    "tolist": lambda x: x.tolist() if isinstance(x, np.ndarray) else x, "pairwise": lambda x: [*pairwise(x)],
}  # fmt: skip
"""Functions and methods of NumPy, torch and math, by the last part of their names."""


def called(
    source: SourceFile,
    function: ast.FunctionDef,
    arguments: Sequence[Any] = (),
    keywords: Mapping[str, Any] | None = None,
    domain: "Numbers | None" = None,
) -> Any:
    """Return the result of a function: a number, or a list of numbers if it works with a vector.

    Raises:
        Unsupported: it does anything that is not followed here.
    """
    frame = Frame(domain or Numbers(), source.path, source.module, Scope({}), source)
    found = frame.entered(frame.written(function), list(arguments), dict(keywords or {}))
    if isinstance(found, Unknown):
        raise Unsupported("returns an unknown value")
    return found.tolist() if isinstance(found, np.ndarray) else plain_items(found)


def worked_out(node: ast.expr, source: SourceFile) -> Any:
    """Return the number, or list of numbers, that an expression at the top of a file stands for; UNKNOWN for
    any other.
    """
    try:
        found = evaluate(node, Numbers(), path=source.path, home=source)
    except Unsupported:
        return UNKNOWN
    found = found.tolist() if isinstance(found, np.ndarray | np.generic) else plain_items(found)
    return found if is_plain(found) else UNKNOWN


class Numbers(OpenDomain):
    """Numbers, and vectors of them; the home of a frame is its file."""

    def name(self, name: str, frame: Frame) -> Any:
        """See `Domain`: a function or a constant of the authors, or what is imported."""
        meant = resolve(frame.home, name)
        if isinstance(meant, str):
            return Unknown(meant)
        if meant is None:
            return super().name(name, frame)
        source, node = meant.source, meant.node
        home = Frame(self, source.path, source.module, Scope({}), source)
        if isinstance(node, ast.FunctionDef):
            return home.written(node)
        constant = source.constants.get(meant.name)
        return home.value(constant) if constant is not None else Unknown(name)

    def attribute(self, base: Any, name: str, frame: Frame) -> Any:
        """See `Domain`: pi, or a method of a number or a vector."""
        if isinstance(base, Unknown):
            path = f"{base.name.replace('torch', 'math').replace('numpy', 'math')}.{name}"
            return CONSTANTS[path] if path in CONSTANTS else super().attribute(base, name, frame)
        return UNKNOWN if name in _PLACES else Native(partial(self.library, name, base))

    def item(self, base: Any, key: Any, frame: Frame) -> Any:
        """See `Domain`: one element, a part, or the elements at several places."""
        if isinstance(base, np.ndarray) or isinstance(key, np.ndarray):
            return _seen(np.asarray(base)[key])
        return super().item(base, key, frame)

    def set_item(self, base: Any, key: Any, value: Any, frame: Frame) -> None:
        """See `Domain`."""
        if not isinstance(base, np.ndarray):
            return super().set_item(base, key, value, frame)
        base[key] = value
        return None

    def operation(self, name: str, operands: list[Any], frame: Frame) -> Any:
        """See `Domain`: with every element."""
        unknown = any(isinstance(one, Unknown) for one in operands)
        if unknown or not hasattr(operator, name) or not any(isinstance(one, np.ndarray) for one in operands):
            return super().operation(name, operands, frame)
        with np.errstate(divide="ignore", invalid="raise", over="raise"):  # 1 / 0 is an infinity, as in torch
            return _seen(getattr(operator, name)(*operands))

    def updated(self, name: str, target: Any, value: Any, frame: Frame) -> Any:
        """See `Domain`: a vector is changed in place."""
        result = self.operation(name, [target, value], frame)
        if isinstance(target, np.ndarray) and isinstance(result, np.ndarray) and target.shape == result.shape:
            target[...] = result
            return target
        return result

    def items(self, value: Any, frame: Frame) -> list[Any]:
        """See `Domain`."""
        return value.tolist() if isinstance(value, np.ndarray) else super().items(value, frame)

    def call(self, function: Any, arguments: list[Any], keywords: dict[str, Any], frame: Frame, node: ast.expr) -> Any:
        """See `Domain`; a call of what is not known may change something, and is refused."""
        if isinstance(function, Unknown) and function.name in LIBRARY and all(map(is_plain, arguments)):
            return LIBRARY[function.name](*arguments, **keywords)
        if isinstance(function, Unknown):
            return self.library(function.name.rpartition(".")[2], *arguments, **keywords)
        if not isinstance(function, Native):
            return super().call(function, arguments, keywords, frame, node)
        if isinstance(function.function, partial):
            return function.function(*arguments, **keywords)
        if function.function is len and isinstance(arguments[0], int | float):
            return UNKNOWN
        name = next((name for name, one in BUILTINS.items() if one is function.function), "")
        if name in _LISTED:
            arguments = [one.tolist() if isinstance(one, np.ndarray) else one for one in arguments]
            return function.function(*arguments, **keywords)
        if any(isinstance(one, np.ndarray) for one in arguments):
            return self.library(name, *arguments, **keywords)
        return super().call(function, arguments, keywords, frame, node)

    def library(self, name: str, *arguments: Any, **keywords: Any) -> Any:
        """Return the result of a function or a method of NumPy, torch or math.

        Raises:
            Unsupported: it is not known here.
        """
        if name not in _FUNCTIONS:
            raise Unsupported(f"calls {name}")
        given = [_vector(one) for one in arguments if not isinstance(one, Unknown | Native)]
        named = {_ARGUMENTS.get(key, key): one for key, one in keywords.items() if key not in _AXES}
        named = {key: one for key, one in named.items() if not (one is None or isinstance(one, Unknown | Native))}
        with np.errstate(divide="raise", invalid="raise", over="raise"):
            result = _FUNCTIONS[name](*given, **named)
        return _seen(_whole(result) if any(map(_is_whole, [*arguments, *keywords.values()])) else result)


def _vector(value: Any) -> Any:
    """Return a list of numbers as a vector, anything else as it is."""
    numbers = isinstance(value, list | tuple) and value and all(isinstance(one, int | float) for one in value)
    return np.asarray(value) if numbers else value


def _seen(value: Any) -> Any:
    """Return a result; one without dimensions is a plain number."""
    if not isinstance(value, np.ndarray | np.generic):
        return value
    if value.ndim > 1 or value.size > _MOST:
        raise Unsupported("creates more than a vector")
    return value if value.ndim else value.item()


def _is_whole(kind: Any) -> bool:
    """Return whether a type holds whole numbers alone."""
    name = kind.name.rpartition(".")[2] if isinstance(kind, Unknown) else ""
    return name.startswith(("int", "long")) or (isinstance(kind, Native) and kind.function is BUILTINS["int"])
