"""Tensors with the dtypes of torch, computed in double precision.

A dtype is a label that follows torch's promotion. Only where a value goes from a wider floating dtype to a narrower one
is it changed, by `narrowed`: so two pieces of code give the same numbers where they compute the same and round in the
same places, whatever operations they are spelt in.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass(frozen=True, order=True)
class Dtype:
    """A dtype of torch.

    Attributes:
        rank: order of promotion: the wider of two dtypes has the higher rank.
        kind: "b" bool, "i" integer, "f" floating, "c" complex; `rank` orders kinds, too.
    """

    rank: int
    name: str
    kind: str

    @property
    def is_floating_point(self) -> bool:
        """Attribute of the same name in torch's dtypes."""
        return self.kind == "f"

    @property
    def stored(self) -> type:
        """NumPy's dtype in which values are held."""
        return {"b": np.bool_, "i": np.int64, "f": np.float64, "c": np.complex128}[self.kind]


_KINDS = {
    "b": "bool",
    "i": "uint8 int8 int16 int32 int64",
    "f": "float8_e4m3fn float8_e5m2 float16 bfloat16 float32 float64",
    "c": "complex64 complex128",
}
DTYPES = {
    name: Dtype(rank, name, kind)
    for rank, (kind, name) in enumerate((kind, name) for kind, names in _KINDS.items() for name in names.split())
}
DTYPES |= {short: DTYPES[name] for short, name in {
    "int": "int32", "long": "int64", "short": "int16", "half": "float16", "float": "float32", "double": "float64",
    "cfloat": "complex64", "cdouble": "complex128",
}.items()}  # fmt: skip
BOOL, INT64, FLOAT32 = DTYPES["bool"], DTYPES["int64"], DTYPES["float32"]


class Tensor:
    """A tensor.

    Attributes:
        data: its values; views share memory as in torch.
        dtype: the dtype that torch would give it.
        exact: the narrowest dtype that holds the values unchanged: widening does not make them need more.
    """

    def __init__(self, data: Array, dtype: Dtype, exact: Dtype | None = None) -> None:
        self.data: Array = np.asarray(data, dtype.stored)
        self.dtype = dtype
        self.exact = exact or dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """Dimensions."""
        return self.data.shape

    def like(self, data: Array) -> "Tensor":
        """Return some of the same values, or in another order."""
        return Tensor(data, self.dtype, self.exact)

    def to(self, dtype: Dtype) -> "Tensor":
        """Return the values in another dtype."""
        if dtype == self.dtype:
            return self
        data: Array = self.data
        if dtype.kind == "f" and self.dtype.kind == "f" and dtype < self.exact:
            data = narrowed(data)
        if dtype.kind in "bif" and self.dtype.kind == "c":
            data = data.real
        if dtype.kind == "i" and self.dtype.kind == "f":
            data = np.trunc(data)
        return Tensor(data.astype(dtype.stored), dtype, min(self.exact, dtype) if dtype.kind == "f" else None)


def narrowed(data: Array) -> Array:
    """Return rounded values as a smooth function: equal arguments give equal results, to the last digits."""
    return np.asarray(data * (1 + 1e-3 * np.sin(7 * data)))


def promoted(*values: Any) -> Dtype:
    """Return the dtype of an operation's result: torch's rules for tensors, tensors without dimensions, and numbers."""
    groups: list[list[Dtype]] = [[], [], []]
    for one in values:
        if isinstance(one, Tensor):
            groups[0 if one.data.ndim else 1].append(one.dtype)
        else:
            groups[2].append(_of_number(one))
    found: Dtype | None = None
    for group in groups:
        for dtype in group:
            if found is None or (dtype.kind != found.kind and "bifc".index(dtype.kind) > "bifc".index(found.kind)):
                found = FLOAT32 if found is not None and dtype.kind == "f" and group is groups[2] else dtype
            elif dtype.kind == found.kind and group is groups[0]:
                found = _wider(found, dtype)
        if group is groups[1] and not groups[0] and group:
            for dtype in group:
                found = _wider(found, dtype) if found is not None and found.kind == dtype.kind else found
    return found or FLOAT32


def _wider(one: Dtype, other: Dtype) -> Dtype:
    """Of two dtypes of a kind, the one that holds both; float16 and bfloat16 meet in float32."""
    return FLOAT32 if {one.name, other.name} == {"float16", "bfloat16"} else max(one, other)


def _of_number(one: Any) -> Dtype:
    kind = type(one)
    if kind is bool:
        return BOOL
    return INT64 if kind is int else DTYPES["complex64"] if kind is complex else FLOAT32


def tensor_of(value: Any, dtype: Dtype | None = None) -> Tensor:
    """Return a tensor from numbers, lists of numbers, or a tensor."""
    if isinstance(value, Tensor):
        return value if dtype is None else value.to(dtype)
    plain = _plain(value)
    data = np.asarray(plain)
    kinds = {"b": BOOL, "i": INT64, "u": INT64, "f": FLOAT32, "c": DTYPES["complex64"]}
    if data.dtype.kind not in kinds:
        raise TypeError(f"no numbers: {value!r}")
    return Tensor(data, kinds[data.dtype.kind] if dtype is None else dtype)


def _plain(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.data
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else value
