"""Functions and methods of torch on `Tensor`, under torch's own names and with torch's own parameters.

A method is the function whose first argument is the tensor; `name_` writes the result of `name` into the tensor. What a
function does not do (a device, a memory format, a generator) is not a parameter here and ignored by `call`.
"""

import inspect
import math
from collections import namedtuple
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import numpy as np

from omni_kit.upstream.torch.tensors import BOOL, DTYPES, FLOAT32, INT64, Array, Dtype, Tensor, promoted, tensor_of

Dims = int | Sequence[int] | None
Number = int | float | complex | Tensor
Chosen = namedtuple("Chosen", ["values", "indices"])
_IGNORED = frozenset({
    "device", "memory_format", "layout", "non_blocking", "inplace", "copy", "requires_grad", "generator", "pin_memory",
    "out", "sparse_grad", "stable",
})  # fmt: skip


class UnsupportedOperation(Exception):
    """A function of torch that is not described here, or is called as nobody foresaw."""


def call(name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Return the result of a function or method of torch.

    Raises:
        UnsupportedOperation: it is none of those known, or torch would refuse the call.
    """
    function = known().get(name)
    try:
        if function is not None:
            return function(*args, **{key: one for key, one in kwargs.items() if key not in _IGNORED})
        if name.endswith("_") and name[:-1] in known():
            return _written(args[0], call(name[:-1], args, kwargs))
    except (TypeError, ValueError, IndexError, KeyError, AttributeError, ArithmeticError) as error:
        shapes = [one.shape for one in (*args, *kwargs.values()) if isinstance(one, Tensor)]
        given = f" for tensors of {', '.join(str(list(shape)) for shape in shapes)}" if shapes else ""
        raise UnsupportedOperation(f"torch's {name} cannot be evaluated here{given}") from error
    raise UnsupportedOperation(f"torch's {name} is not known")


@cache
def known() -> dict[str, Callable[..., Any]]:
    """Return every function by torch's name."""
    own: dict[str, Callable[..., Any]] = {
        name.removesuffix("_of_torch"): one
        for name, one in globals().items()
        if inspect.isfunction(one) and one.__module__ == __name__ and not name.startswith("_")
    }
    del own["call"]
    own["_grouped_mm"] = grouped_mm
    return own | _POINTWISE | _BINARY | _COMPARED | _REDUCED | _CASTS


def _written(target: Tensor, result: Tensor) -> Tensor:
    target.data[...] = result.to(target.dtype).data
    target.exact = target.dtype
    return target


# Point by point


def _sigmoid(x: Array) -> Array:
    return 0.5 * (1 + np.tanh(0.5 * x))


def _erf(x: Array) -> Array:
    return np.asarray(np.vectorize(math.erf, otypes=[np.float64])(x))


def _softplus(x: Array) -> Array:
    return np.logaddexp(0, x)


def _pointwise(function: Callable[[Array], Array], input: Tensor) -> Tensor:
    dtype = input.dtype if input.dtype.kind in "fc" else FLOAT32
    with np.errstate(all="ignore"):
        return Tensor(function(input.data.astype(dtype.stored)), dtype)


def _kept(function: Callable[[Array], Array], input: Tensor) -> Tensor:
    """Return functions whose result has the dtype of what they are given, integers too."""
    return Tensor(function(input.data), input.dtype, input.exact)


_POINTWISE: dict[str, Callable[..., Any]] = {
    **{
        name: partial(_pointwise, function)  # type: ignore[arg-type]
        for name, function in {
            "sigmoid": _sigmoid, "silu": lambda x: x * _sigmoid(x), "swish": lambda x: x * _sigmoid(x),
            "tanh": np.tanh, "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "log": np.log, "log2": np.log2,
            "log10": np.log10, "log1p": np.log1p, "sqrt": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x), "sin": np.sin,
            "cos": np.cos, "tan": np.tan, "atan": np.arctan, "reciprocal": lambda x: 1 / x, "erf": _erf,
            "mish": lambda x: x * np.tanh(_softplus(x)), "logsigmoid": lambda x: -_softplus(-x),
            "softsign": lambda x: x / (1 + np.abs(x)), "angle": np.angle,
            "selu": lambda x: 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(x)),
            "hardswish": lambda x: x * np.clip(x + 3, 0, 6) / 6, "hardsigmoid": lambda x: np.clip(x + 3, 0, 6) / 6,
            "square_relu": lambda x: np.square(np.maximum(x, 0)),
        }.items()
    },
    **{
        name: partial(_kept, function)  # type: ignore[arg-type]
        for name, function in {
            "neg": np.negative, "negative": np.negative, "abs": np.abs, "relu": lambda x: np.maximum(x, 0),
            "ceil": np.ceil, "floor": np.floor, "trunc": np.trunc, "sign": np.sign, "square": lambda x: x * x,
            "relu6": lambda x: np.clip(x, 0, 6), "conj": np.conj, "contiguous": lambda x: x, "clone": np.copy,
            "cpu": lambda x: x, "cuda": lambda x: x, "requires_grad": lambda x: x, "resolve_conj": lambda x: x,
            "nan_to_num": np.nan_to_num, "detach": np.copy,
        }.items()
    },
    **{
        name: lambda input, test=test: Tensor(test(input.data), BOOL)
        for name, test in {
            "isnan": np.isnan, "isinf": np.isinf, "isfinite": np.isfinite, "logical_not": np.logical_not,
        }.items()
    },
}  # fmt: skip


def gelu(input: Tensor, approximate: str = "none") -> Tensor:
    if approximate == "tanh":
        return _pointwise(lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))), input)
    return _pointwise(lambda x: 0.5 * x * (1 + _erf(x / math.sqrt(2))), input)


def softplus(input: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    return _pointwise(lambda x: np.where(x * beta > threshold, x, _softplus(x * beta) / beta), input)


def elu(input: Tensor, alpha: float = 1.0) -> Tensor:
    return _pointwise(lambda x: np.where(x > 0, x, alpha * np.expm1(x)), input)


def leaky_relu(input: Tensor, negative_slope: float = 0.01) -> Tensor:
    return _pointwise(lambda x: np.where(x > 0, x, negative_slope * x), input)


def glu(input: Tensor, dim: int = -1) -> Tensor:
    first, second = chunk(input, 2, dim)
    return call("mul", [first, call("sigmoid", [second], {})], {})  # type: ignore[no-any-return]


def round_of_torch(input: Tensor, decimals: int = 0) -> Tensor:
    return _kept(lambda x: np.round(x, decimals), input)


def clamp(input: Tensor, min: Any = None, max: Any = None) -> Tensor:
    data = input.data
    data = data if min is None else np.maximum(data, _data(min))
    return Tensor(data if max is None else np.minimum(data, _data(max)), promoted(input, *_tensors(min, max)))


clip = clamp


def clamp_min(input: Tensor, min: Any) -> Tensor:
    return clamp(input, min)


def clamp_max(input: Tensor, max: Any) -> Tensor:
    return clamp(input, None, max)


def dropout(input: Tensor, p: float = 0.5, training: bool = False) -> Tensor:
    """With a deterministic share instead of a random one, so that dropout is seen in the numbers."""
    return call("mul", [input, 1 - 0.5 * p], {}) if training and p else input


# Two by two


def _binary(function: Callable[[Any, Any], Array], input: Number, other: Number, alpha: Any = 1) -> Tensor:
    scaled = _data(other) if alpha == 1 else _data(alpha) * _data(other)
    with np.errstate(all="ignore"):
        return Tensor(np.asarray(function(_data(input), scaled)), promoted(input, other))


def _quotient(input: Number, other: Number, rounding_mode: str | None = None) -> Tensor:
    dtype = promoted(input, other)
    rounding: Any = {None: lambda x: x, "floor": np.floor, "trunc": np.trunc}[rounding_mode]
    if rounding_mode is None and dtype.kind in "bi":
        dtype = FLOAT32
    with np.errstate(all="ignore"):
        return Tensor(rounding(np.true_divide(_data(input), _data(other))), dtype)


def _power(input: Any, exponent: Any) -> Array:
    base = np.asarray(input)
    if base.dtype.kind in "iu" and np.any(np.asarray(exponent) < 0):
        base = base.astype(np.float64)
    return np.asarray(np.power(base, exponent))


_BINARY: dict[str, Callable[..., Any]] = {
    **{
        name: partial(_binary, function)  # type: ignore[arg-type]
        for name, function in {
            "add": np.add, "sub": np.subtract, "subtract": np.subtract, "mul": np.multiply, "multiply": np.multiply,
            "remainder": np.mod, "fmod": np.fmod, "maximum": np.maximum,
            "minimum": np.minimum, "floor_divide": np.floor_divide, "bitwise_and": np.bitwise_and,
            "bitwise_or": np.bitwise_or, "bitwise_xor": np.bitwise_xor, "pow": _power,
            "logaddexp": np.logaddexp,
        }.items()
    },
    "rsub": lambda input, other, alpha=1: _binary(np.subtract, other, input, alpha),
    "div": _quotient, "divide": _quotient, "true_divide": _quotient,
}  # fmt: skip


def _compared(function: Callable[[Any, Any], Array], input: Number, other: Number) -> Tensor:
    return Tensor(np.asarray(function(_data(input), _data(other))), BOOL)


_COMPARED: dict[str, Callable[..., Any]] = {
    name: partial(_compared, function)
    for names, function in {
        "eq": np.equal, "ne not_equal": np.not_equal, "lt less": np.less, "le less_equal": np.less_equal,
        "gt greater": np.greater, "ge greater_equal": np.greater_equal, "logical_and": np.logical_and,
        "logical_or": np.logical_or, "logical_xor": np.logical_xor,
    }.items()
    for name in names.split()
}  # fmt: skip


def where(condition: Tensor, input: Any = None, other: Any = None) -> Any:
    if input is None:
        return nonzero(condition, as_tuple=True)
    return Tensor(np.where(condition.data, _data(input), _data(other)), promoted(input, other))


def addcmul(input: Tensor, tensor1: Tensor, tensor2: Tensor, value: float = 1) -> Tensor:
    return Tensor(input.data + value * tensor1.data * tensor2.data, promoted(input, tensor1, tensor2))


def addcdiv(input: Tensor, tensor1: Tensor, tensor2: Tensor, value: float = 1) -> Tensor:
    return Tensor(input.data + value * tensor1.data / tensor2.data, promoted(input, tensor1, tensor2))


def lerp(input: Tensor, end: Tensor, weight: Any) -> Tensor:
    return Tensor(input.data + _data(weight) * (end.data - input.data), promoted(input, end))


def masked_fill(input: Tensor, mask: Tensor, value: Any) -> Tensor:
    return Tensor(np.where(mask.data, _data(value), input.data), input.dtype)


# Matrix products


def matmul(input: Tensor, other: Tensor) -> Tensor:
    return Tensor(np.matmul(input.data, other.data), _floats(input, other))


mm = bmm = mv = matmul


def dot(input: Tensor, other: Tensor) -> Tensor:
    return Tensor(np.dot(input.data, other.data), _floats(input, other))


def outer(input: Tensor, vec2: Tensor) -> Tensor:
    return Tensor(np.outer(input.data, vec2.data), promoted(input, vec2))


def einsum(equation: str, *operands: Any) -> Tensor:
    tensors = operands[0] if len(operands) == 1 and isinstance(operands[0], list | tuple) else operands
    return Tensor(np.einsum(equation.replace(" ", ""), *(one.data for one in tensors)), _floats(*tensors))


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    data = np.matmul(input.data, weight.data.T)
    return Tensor(data if bias is None else data + bias.data, _floats(input, weight))


def addmm(input: Tensor, mat1: Tensor, mat2: Tensor, beta: float = 1, alpha: float = 1) -> Tensor:
    return Tensor(beta * input.data + alpha * np.matmul(mat1.data, mat2.data), _floats(mat1, mat2))


def baddbmm(input: Tensor, batch1: Tensor, batch2: Tensor, beta: float = 1, alpha: float = 1) -> Tensor:
    return addmm(input, batch1, batch2, beta, alpha)


def grouped_mm(input: Tensor, mat2: Tensor, offs: Tensor | None = None, bias: Tensor | None = None) -> Tensor:
    ends = [int(one) for one in (offs.data if offs is not None else [])]
    data = np.zeros((input.shape[0], mat2.shape[-1]))
    for index, (start, end) in enumerate(zip([0, *ends], ends, strict=False)):
        data[start:end] = input.data[start:end] @ mat2.data[index]
    return Tensor(data, _floats(input, mat2))


# Along dimensions


def _reduced(
    function: Callable[..., Array], input: Tensor, dim: Dims = None, keepdim: bool = False, dtype: Any = None
) -> Tensor:
    given = input if dtype is None else input.to(dtype)
    axis = tuple(dim) if isinstance(dim, list | tuple) and dim else dim if isinstance(dim, int) else None
    kind = INT64 if given.dtype.kind in "bi" and function in {np.sum, np.prod} else given.dtype
    return Tensor(np.asarray(function(given.data, axis=axis, keepdims=keepdim)), kind)


_REDUCED: dict[str, Callable[..., Any]] = {
    name: partial(_reduced, function)  # type: ignore[arg-type]
    for name, function in {
        "sum": np.sum, "mean": np.mean, "prod": np.prod, "amax": np.max, "amin": np.min,
    }.items()
}  # fmt: skip


def any_of_torch(input: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    return Tensor(np.asarray(np.any(input.data, axis=_axis(dim), keepdims=keepdim)), BOOL)


def all_of_torch(input: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    return Tensor(np.asarray(np.all(input.data, axis=_axis(dim), keepdims=keepdim)), BOOL)


def max_of_torch(input: Tensor, dim: Any = None, keepdim: bool = False) -> Any:
    return _extreme("max", input, dim, keepdim)


def min_of_torch(input: Tensor, dim: Any = None, keepdim: bool = False) -> Any:
    return _extreme("min", input, dim, keepdim)


def _extreme(name: str, input: Tensor, dim: Any, keepdim: bool) -> Any:
    if isinstance(dim, Tensor):
        return call(f"{name}imum", [input, dim], {})
    if dim is None:
        return input.like(getattr(np, name)(input.data))
    indices = getattr(np, f"arg{name}")(input.data, axis=dim, keepdims=True)
    values = np.take_along_axis(input.data, indices, dim)
    if not keepdim:
        values, indices = values.squeeze(dim), indices.squeeze(dim)
    return Chosen(input.like(values), Tensor(indices, INT64))


def argmax(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    return Tensor(np.asarray(np.argmax(input.data, axis=dim, keepdims=keepdim)), INT64)


def argmin(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    return Tensor(np.asarray(np.argmin(input.data, axis=dim, keepdims=keepdim)), INT64)


def cumsum(input: Tensor, dim: int, dtype: Dtype | None = None) -> Tensor:
    given = input if dtype is None else input.to(dtype)
    return Tensor(np.cumsum(given.data, axis=dim), INT64 if given.dtype.kind in "bi" and dtype is None else given.dtype)


def logsumexp(input: Tensor, dim: Dims, keepdim: bool = False) -> Tensor:
    top = np.max(input.data, axis=_axis(dim), keepdims=True)
    total = np.log(np.exp(input.data - top).sum(axis=_axis(dim), keepdims=True)) + top
    return Tensor(total if keepdim else np.squeeze(total, _axis(dim)), promoted(input, 1.0))


def diff(
    input: Tensor, n: int = 1, dim: int = -1, prepend: Tensor | None = None, append: Tensor | None = None
) -> Tensor:
    if n == 0:
        return input
    parts = [one for one in (prepend, input, append) if one is not None]
    return input.like(np.diff(cat(parts, dim).data, n, axis=dim))


def var(
    input: Tensor, dim: Dims = None, unbiased: bool = True, keepdim: bool = False, correction: int | None = 1
) -> Tensor:
    return Tensor(
        np.asarray(
            np.var(
                input.data,
                axis=_axis(dim),
                ddof=(1 if correction is None else correction) if unbiased else 0,
                keepdims=keepdim,
            )
        ),
        input.dtype,
    )


def std(
    input: Tensor, dim: Dims = None, unbiased: bool = True, keepdim: bool = False, correction: int | None = 1
) -> Tensor:
    return call("sqrt", [var(input, dim, unbiased, keepdim, correction)], {})  # type: ignore[no-any-return]


def norm(input: Tensor, p: Any = 2, dim: Dims = None, keepdim: bool = False, dtype: Any = None) -> Tensor:
    given = input if dtype is None else input.to(dtype)
    power = 2 if p in {"fro", None} else p
    if power in {0, math.inf, -math.inf}:
        raise UnsupportedOperation(f"the norm of order {p} is not known")
    return Tensor(
        np.asarray(np.sum(np.abs(given.data) ** power, axis=_axis(dim), keepdims=keepdim) ** (1 / power)), given.dtype
    )


def normalize(input: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Tensor:
    return Tensor(input.data / np.maximum(norm(input, p, dim, True).data, eps), input.dtype)


def softmax(input: Tensor, dim: int | None = None, dtype: Dtype | None = None, _stacklevel: int = 3) -> Tensor:
    given = input if dtype is None else input.to(dtype)
    if not given.data.size:
        return given
    axis = -1 if dim is None else dim
    scaled = np.exp(given.data - np.max(given.data, axis=axis, keepdims=True))
    return Tensor(scaled / scaled.sum(axis=axis, keepdims=True), given.dtype)


def log_softmax(input: Tensor, dim: int | None = None, dtype: Dtype | None = None, _stacklevel: int = 3) -> Tensor:
    return call("log", [softmax(input, dim, dtype)], {})  # type: ignore[no-any-return]


def topk(input: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Chosen:
    ordered = sort_of_torch(input, dim, descending=largest)
    return Chosen(*(narrow(one, dim, 0, int(k)) for one in ordered))


def sort_of_torch(input: Tensor, dim: int = -1, descending: bool = False) -> Chosen:
    data = -input.data if descending else input.data
    indices = np.argsort(data, axis=dim, kind="stable")
    return Chosen(input.like(np.take_along_axis(input.data, indices, dim)), Tensor(indices, INT64))


def argsort(input: Tensor, dim: int = -1, descending: bool = False) -> Tensor:
    return Tensor(sort_of_torch(input, dim, descending).indices.data, INT64)


def unique(
    input: Tensor,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Any:
    if dim is not None:
        raise UnsupportedOperation("unique rows are not known")
    found: Any = np.unique(input.data, False, return_inverse, return_counts)  # type: ignore[call-overload]
    if isinstance(found, tuple):
        return (input.like(found[0]), *(Tensor(one, INT64) for one in found[1:]))
    return input.like(found)


def bincount(input: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
    data = np.bincount(input.data, None if weights is None else weights.data, minlength)
    return Tensor(data, INT64 if weights is None else DTYPES["float64"])


def histc(input: Tensor, bins: int = 100, min: float = 0, max: float = 0) -> Tensor:
    low, high = (min, max) if min != max else (input.data.min(), input.data.max())
    return Tensor(np.histogram(input.data, bins=int(bins), range=(float(low), float(high)))[0], input.dtype)


def searchsorted(sorted_sequence: Tensor, input: Tensor, right: bool = False, out_int32: bool = False) -> Tensor:
    if sorted_sequence.data.ndim != 1:
        raise UnsupportedOperation("searchsorted in rows is not known")
    return Tensor(
        np.searchsorted(sorted_sequence.data, _data(input), "right" if right else "left"),
        DTYPES["int32"] if out_int32 else INT64,
    )


# Shapes


def view(input: Tensor, *shape: Any) -> Tensor:
    first = shape[0]
    if isinstance(first, Dtype):
        raise UnsupportedOperation("a view in another dtype is not known")
    return input.like(input.data.reshape(_sizes(shape)))


reshape = view


def view_as(input: Tensor, other: Tensor) -> Tensor:
    return view(input, other.shape)


reshape_as = view_as


def flatten(input: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    rank = max(input.data.ndim, 1)
    start, end = start_dim % rank, end_dim % rank
    return view(input, *input.shape[:start], -1, *input.shape[end + 1 :])


def unflatten(input: Tensor, dim: int, sizes: Sequence[int]) -> Tensor:
    place = dim % input.data.ndim
    return view(input, *input.shape[:place], *sizes, *input.shape[place + 1 :])


def transpose(input: Tensor, dim0: int, dim1: int) -> Tensor:
    return input.like(np.swapaxes(input.data, dim0, dim1))


swapaxes = swapdims = transpose


def t(input: Tensor) -> Tensor:
    return input.like(input.data.T)


def permute(input: Tensor, *axes: Any, dims: Any = None) -> Tensor:
    return input.like(np.transpose(input.data, _sizes(axes or [dims])))


def movedim(input: Tensor, source: Any, destination: Any) -> Tensor:
    return input.like(np.moveaxis(input.data, source, destination))


def unsqueeze(input: Tensor, dim: int) -> Tensor:
    return input.like(np.expand_dims(input.data, dim))


def squeeze(input: Tensor, dim: Any = None) -> Tensor:
    if dim is None:
        return input.like(np.squeeze(input.data))
    axes = tuple(one for one in ([dim] if isinstance(dim, int) else dim) if input.shape[one] == 1)
    return input.like(np.squeeze(input.data, axes))


def expand(input: Tensor, *size: Any) -> Tensor:
    sizes = _sizes(size)
    own = (1,) * (len(sizes) - input.data.ndim) + input.shape
    return input.like(np.broadcast_to(input.data, [n if n != -1 else m for n, m in zip(sizes, own, strict=True)]))


def expand_as(input: Tensor, other: Tensor) -> Tensor:
    return expand(input, other.shape)


def broadcast_to(input: Tensor, size: Any) -> Tensor:
    return expand(input, size)


def repeat(input: Tensor, *repeats: Any) -> Tensor:
    return input.like(np.tile(input.data, _sizes(repeats)))


tile = repeat


def repeat_interleave(input: Tensor, repeats: Any, dim: int | None = None, output_size: int | None = None) -> Tensor:
    return input.like(np.repeat(input.data, _data(repeats), axis=dim))


def hstack(tensors: Sequence[Tensor]) -> Tensor:
    return cat(tensors, 1 if tensors[0].data.ndim > 1 else 0)


def vstack(tensors: Sequence[Tensor]) -> Tensor:
    return cat([one if one.data.ndim > 1 else unsqueeze(one, 0) for one in tensors], 0)


def chunk(input: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    return split(input, -(-input.shape[dim] // chunks), dim)


def tensor_split(input: Tensor, indices_or_sections: Any, dim: int = 0) -> tuple[Tensor, ...]:
    return tuple(input.like(one) for one in np.array_split(input.data, indices_or_sections, axis=dim))


def split(input: Tensor, split_size_or_sections: Any, dim: int = 0) -> tuple[Tensor, ...]:
    size, total = split_size_or_sections, input.shape[dim]
    sizes = (
        [size] * (total // size) + ([total % size] if total % size else [])
        if isinstance(size, int)
        else [int(one) for one in size]
    )
    ends = np.cumsum(sizes)
    if ends[-1] != total:
        raise ValueError(f"parts of {sizes} do not make {total}")
    return tuple(input.like(one) for one in np.split(input.data, ends[:-1], axis=dim))


split_with_sizes = split


def unbind(input: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    return tuple(input.like(one) for one in np.moveaxis(input.data, dim, 0))


def cat(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    parts = [one for one in tensors if one.shape != (0,)] or tensors[:1]
    return Tensor(
        np.concatenate([one.data for one in parts], axis=dim), promoted(*tensors), max(one.exact for one in tensors)
    )


concat = concatenate = cat


def stack(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    return Tensor(
        np.stack([one.data for one in tensors], axis=dim), promoted(*tensors), max(one.exact for one in tensors)
    )


def narrow(input: Tensor, dim: int, start: Any, length: int) -> Tensor:
    return input.like(input.data[_along(dim, input, slice(int(_data(start)), int(_data(start)) + length))])


def select(input: Tensor, dim: int, index: Any) -> Tensor:
    return input.like(input.data[_along(dim, input, int(_data(index)))])


def flip(input: Tensor, *axes: Any, dims: Any = None) -> Tensor:
    return input.like(np.flip(input.data, _sizes(axes or [dims])))


def roll(input: Tensor, shifts: Any, dims: Any = None) -> Tensor:
    return input.like(np.roll(input.data, shifts, dims))


def pad(input: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Tensor:
    pairs = [(int(a), int(b)) for a, b in zip(pad[::2], pad[1::2], strict=True)][::-1]
    if mode != "constant" or any(n < 0 for pair in pairs for n in pair):
        raise UnsupportedOperation(f"padding {mode} is not known")
    return input.like(np.pad(input.data, [(0, 0)] * (input.data.ndim - len(pairs)) + pairs, constant_values=value or 0))


def tril(input: Tensor, diagonal: int = 0) -> Tensor:
    return input.like(np.tril(input.data, diagonal))


def triu(input: Tensor, diagonal: int = 0) -> Tensor:
    return input.like(np.triu(input.data, diagonal))


def diagonal(input: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    return input.like(np.diagonal(input.data, offset, dim1, dim2))


# Picking and placing


def getitem(input: Tensor, key: Any) -> Tensor:
    return input.like(input.data[_key(key)])


def setitem(input: Tensor, key: Any, value: Any) -> None:
    input.data[_key(key)] = tensor_of(value).to(input.dtype).data
    input.exact = input.dtype


def index_select(input: Tensor, dim: int, index: Tensor) -> Tensor:
    return input.like(np.take(input.data, index.data, axis=dim))


def gather(input: Tensor, dim: int, index: Tensor) -> Tensor:
    return input.like(input.data[_places(input, dim, index)])


def take_along_dim(input: Tensor, indices: Tensor, dim: int) -> Tensor:
    return input.like(np.take_along_axis(input.data, indices.data, dim))


def scatter(input: Tensor, dim: int, index: Tensor, src: Any, reduce: str | None = None) -> Tensor:
    data, places = input.data.copy(), _places(input, dim, index)
    values = src.data[tuple(map(slice, index.shape))] if isinstance(src, Tensor) else src
    if reduce is None:
        data[places] = values
    else:
        {"add": np.add, "multiply": np.multiply}[reduce].at(data, places, values)
    return Tensor(data, input.dtype)


def scatter_add(input: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    return scatter(input, dim, index, src, "add")


def index_add(input: Tensor, dim: int, index: Tensor, source: Tensor, alpha: float = 1) -> Tensor:
    data = input.data.copy()
    np.add.at(data, _along(dim, input, index.data), alpha * source.data)
    return Tensor(data, input.dtype)


def index_copy(input: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    data = input.data.copy()
    data[_along(dim, input, index.data)] = source.data
    return Tensor(data, input.dtype)


def index_put(input: Tensor, indices: Sequence[Tensor], values: Tensor, accumulate: bool = False) -> Tensor:
    data, places = input.data.copy(), tuple(one.data for one in indices)
    if accumulate:
        np.add.at(data, places, values.data)
    else:
        data[places] = values.data
    return Tensor(data, input.dtype)


def masked_select(input: Tensor, mask: Tensor) -> Tensor:
    return input.like(input.data[np.broadcast_to(mask.data, input.shape)])


def nonzero(input: Tensor, as_tuple: bool = False) -> Any:
    found = np.nonzero(input.data)
    return tuple(Tensor(one, INT64) for one in found) if as_tuple else Tensor(np.stack(found, axis=-1), INT64)


def argwhere(input: Tensor) -> Tensor:
    return nonzero(input)  # type: ignore[no-any-return]


def one_hot(input: Tensor, num_classes: int = -1) -> Tensor:
    count = int(input.data.max()) + 1 if num_classes == -1 else int(num_classes)
    return Tensor(np.eye(count, dtype=np.int64)[input.data], INT64)


def embedding(input: Tensor, weight: Tensor, padding_idx: int | None = None) -> Tensor:
    return weight.like(weight.data[input.data])


def isin(elements: Tensor, test_elements: Tensor) -> Tensor:
    return Tensor(np.isin(elements.data, _data(test_elements)), BOOL)


# New tensors


def zeros(*size: Any, dtype: Dtype | None = None) -> Tensor:
    return Tensor(np.zeros(_sizes(size)), dtype or FLOAT32)


def ones(*size: Any, dtype: Dtype | None = None) -> Tensor:
    return Tensor(np.ones(_sizes(size)), dtype or FLOAT32)


empty = zeros


def full(size: Sequence[int], fill_value: Any, dtype: Dtype | None = None) -> Tensor:
    return Tensor(np.full(size, _data(fill_value)), dtype or promoted(fill_value))


def zeros_like(input: Tensor, dtype: Dtype | None = None) -> Tensor:
    return zeros(input.shape, dtype=dtype or input.dtype)


empty_like = zeros_like


def ones_like(input: Tensor, dtype: Dtype | None = None) -> Tensor:
    return ones(input.shape, dtype=dtype or input.dtype)


def full_like(input: Tensor, fill_value: Any, dtype: Dtype | None = None) -> Tensor:
    return full(input.shape, fill_value, dtype or input.dtype)


def new_zeros(input: Tensor, *size: Any, dtype: Dtype | None = None) -> Tensor:
    return zeros(*size, dtype=dtype or input.dtype)


new_empty = new_zeros


def new_ones(input: Tensor, *size: Any, dtype: Dtype | None = None) -> Tensor:
    return ones(*size, dtype=dtype or input.dtype)


def new_full(input: Tensor, size: Sequence[int], fill_value: Any, dtype: Dtype | None = None) -> Tensor:
    return full(size, fill_value, dtype or input.dtype)


def new_tensor(input: Tensor, data: Any, dtype: Dtype | None = None) -> Tensor:
    return tensor_of(data, dtype or input.dtype)


def tensor(data: Any, dtype: Dtype | None = None) -> Tensor:
    return tensor_of(data, dtype)


as_tensor = tensor


def arange(*bounds: Any, dtype: Dtype | None = None, **named: Any) -> Tensor:
    given = [_data(one) for one in (*bounds, *(named[key] for key in ("start", "end", "step") if key in named))]
    if dtype is not None and dtype.kind == "i":
        given = [int(one) for one in given]
    data = np.arange(*given)
    return Tensor(data, dtype or (INT64 if data.dtype.kind in "iu" else FLOAT32))


def linspace(start: float, end: float, steps: int, dtype: Dtype | None = None) -> Tensor:
    if dtype is not None and dtype.kind == "i":
        raise UnsupportedOperation("linspace of integers is not known")
    return Tensor(np.linspace(_data(start), _data(end), steps), dtype or FLOAT32)


def eye(n: int, m: int | None = None, dtype: Dtype | None = None) -> Tensor:
    return Tensor(np.eye(n, m), dtype or FLOAT32)


def meshgrid(*tensors: Any, indexing: str = "ij") -> tuple[Tensor, ...]:
    given = tensors[0] if isinstance(tensors[0], list | tuple) else tensors
    return tuple(given[0].like(one) for one in np.meshgrid(*[one.data for one in given], indexing=indexing))  # type: ignore[call-overload]


def polar(abs: Tensor, angle: Tensor) -> Tensor:
    return Tensor(abs.data * np.exp(1j * angle.data), _complex(abs.dtype))


def complex_of_torch(real: Tensor, imag: Tensor) -> Tensor:
    return Tensor(real.data + 1j * imag.data, _complex(real.dtype))


def view_as_complex(input: Tensor) -> Tensor:
    return Tensor(input.data[..., 0] + 1j * input.data[..., 1], _complex(input.dtype))


def view_as_real(input: Tensor) -> Tensor:
    dtype = FLOAT32 if input.dtype.name == "complex64" else DTYPES["float64"]
    return Tensor(np.stack([input.data.real, input.data.imag], axis=-1), dtype)


def _complex(part: Dtype) -> Dtype:
    return DTYPES["complex128" if part.name == "float64" else "complex64"]


# Dtypes and numbers

_CASTS: dict[str, Callable[..., Any]] = {
    name: (lambda input, dtype=dtype: input.to(dtype))
    for name, dtype in DTYPES.items()
    if name in {"float", "half", "bfloat16", "double", "int", "long", "bool", "short"}
}


def to(input: Tensor, *target: Any, dtype: Dtype | None = None, other: Tensor | None = None) -> Tensor:
    given = [one.dtype if isinstance(one, Tensor) else one for one in (*target, dtype, other)]
    wanted = next((one for one in given if isinstance(one, Dtype)), None)
    return input if wanted is None else input.to(wanted)


def type_of_torch(input: Tensor, dtype: Dtype) -> Tensor:
    return input.to(dtype)


def type_as(input: Tensor, other: Tensor) -> Tensor:
    return input.to(other.dtype)


def copy(input: Tensor, src: Tensor) -> Tensor:
    return Tensor(np.broadcast_to(src.data, input.shape), src.dtype)


def zero(input: Tensor) -> Tensor:
    return zeros_like(input)


def fill(input: Tensor, value: Any) -> Tensor:
    return full_like(input, value)


def item(input: Tensor) -> Any:
    return input.data.item()


def tolist(input: Tensor) -> Any:
    return input.data.tolist()


def size(input: Tensor, dim: int | None = None) -> Any:
    return input.shape if dim is None else input.shape[dim]


def dim(input: Tensor) -> int:
    return input.data.ndim


def numel(input: Tensor) -> int:
    return input.data.size


def is_floating_point(input: Tensor) -> bool:
    return input.dtype.is_floating_point


# Layers


def layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    axes = tuple(range(-len(normalized_shape), 0))
    centred = input.data - input.data.mean(axis=axes, keepdims=True)
    data = centred / np.sqrt(np.square(centred).mean(axis=axes, keepdims=True) + eps)
    data = data if weight is None else data * weight.data
    return Tensor(data if bias is None else data + bias.data, input.dtype)


def rms_norm(
    input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    axes = tuple(range(-len(normalized_shape), 0))
    small = float(np.finfo(np.float32).eps) if eps is None else eps
    data = input.data / np.sqrt(np.square(input.data).mean(axis=axes, keepdims=True) + small)
    return Tensor(
        data if weight is None else data * weight.data, input.dtype if weight is None else promoted(input, weight)
    )


def scaled_dot_product_attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0,
    is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False,
) -> Tensor:  # fmt: skip
    keys, values = key.data, value.data
    if enable_gqa:
        keys, values = (np.repeat(one, query.shape[-3] // one.shape[-3], axis=-3) for one in (keys, values))
    scores = query.data @ np.swapaxes(keys, -1, -2) * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    if is_causal:
        scores = np.where(np.tril(np.ones(scores.shape[-2:], bool)), scores, -np.inf)
    if attn_mask is not None:
        scores = np.where(attn_mask.data, scores, -np.inf) if attn_mask.dtype is BOOL else scores + attn_mask.data
    return Tensor(softmax(Tensor(scores, query.dtype), -1).data @ values, promoted(query, key, value))


def cross_entropy(
    input: Tensor, target: Tensor, weight: Tensor | None = None, ignore_index: int = -100, reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:  # fmt: skip
    if weight is not None or label_smoothing or input.data.ndim != 2 or reduction not in {"mean", "sum"}:
        raise UnsupportedOperation("a weighted or smoothed cross-entropy is not known")
    kept = target.data != ignore_index
    scores = log_softmax(input, -1).data[np.arange(len(target.data)), np.where(kept, target.data, 0)]
    total = -(scores * kept).sum()
    return Tensor(np.asarray(total / kept.sum() if reduction == "mean" else total), input.dtype)


# What arguments may be


def _data(one: Any) -> Any:
    return one.data if isinstance(one, Tensor) else one


def _tensors(*values: Any) -> list[Tensor]:
    return [one for one in values if isinstance(one, Tensor)]


def _floats(*tensors: Tensor) -> Dtype:
    """Matrix products want one dtype: where there are two, torch refuses; autocast, which is not seen, may not."""
    return promoted(*tensors)


def _axis(dim: Dims) -> Any:
    return tuple(dim) if isinstance(dim, list | tuple) else dim


def _sizes(given: Sequence[Any]) -> tuple[int, ...]:
    """Return sizes or dimensions, one by one or as one list."""
    listed = given[0] if len(given) == 1 and isinstance(given[0], list | tuple) else given
    return tuple(int(_data(one)) for one in listed)


def _along(dim: int, tensor: Tensor, key: Any) -> tuple[Any, ...]:
    return (*(slice(None),) * (dim % tensor.data.ndim), key)


def _places(tensor: Tensor, dim: int, index: Tensor) -> tuple[Array, ...]:
    places = list(np.indices(index.shape, sparse=True))
    places[dim % tensor.data.ndim] = index.data
    return tuple(places)


def _key(key: Any) -> Any:
    if isinstance(key, tuple):
        return tuple(_key(one) for one in key)
    if isinstance(key, list):
        return [_key(one) for one in key]
    if isinstance(key, slice):
        return slice(*(None if one is None else int(_data(one)) for one in (key.start, key.stop, key.step)))
    return key.data if isinstance(key, Tensor) else key
