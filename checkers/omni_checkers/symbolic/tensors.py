"""Tensors of a few labelled elements: what stacking, joining and transposing do, element by element, without torch."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

_SAME = {"contiguous", "to", "clone", "detach", "cpu", "float", "half", "bfloat16", "type_as", "requires_grad_"}


class NotATensor(Exception):
    """The operation is not known, or does not fit the shapes."""


@dataclass(frozen=True)
class Tiny:
    """A tensor whose elements are labels; every label occurs once in a checkpoint.

    Attributes:
        data: elements in row-major order.
    """

    shape: tuple[int, ...]
    data: tuple[str, ...]

    @classmethod
    def named(cls, name: str, shape: Sequence[int]) -> "Tiny":
        """A tensor whose elements are called after it and their place."""
        places = product(*(range(size) for size in shape))
        return cls(tuple(shape), tuple(f"{name}{list(place)}" for place in places))

    def at(self, place: Sequence[int]) -> str:
        """The element at a place, one index for each dimension."""
        offset = 0
        for index, size in zip(place, self.shape, strict=True):
            offset = offset * size + index
        return self.data[offset]

    def __str__(self) -> str:
        return f"tensor{list(self.shape)}({self.data[0] if self.data else ''}...{hash(self.data) & 0xFFFF:x})"


def _made(shape: Sequence[int], element: Callable[[tuple[int, ...]], str]) -> Tiny:
    return Tiny(tuple(shape), tuple(element(place) for place in product(*(range(size) for size in shape))))


def stack(tensors: Sequence[Tiny], dim: int = 0) -> Tiny:
    """torch.stack."""
    if not tensors or len({tensor.shape for tensor in tensors}) != 1:
        raise NotATensor("stack of different shapes")
    inner = tensors[0].shape
    dim = _dimension(dim, len(inner) + 1)
    shape = (*inner[:dim], len(tensors), *inner[dim:])
    return _made(shape, lambda place: tensors[place[dim]].at((*place[:dim], *place[dim + 1 :])))


def cat(tensors: Sequence[Tiny], dim: int = 0) -> Tiny:
    """torch.cat."""
    if not tensors or len({len(tensor.shape) for tensor in tensors}) != 1:
        raise NotATensor("cat of different ranks")
    dim = _dimension(dim, len(tensors[0].shape))
    if len({(*t.shape[:dim], *t.shape[dim + 1 :]) for t in tensors}) != 1:
        raise NotATensor("cat of different shapes")
    owners = [(number, row) for number, tensor in enumerate(tensors) for row in range(tensor.shape[dim])]
    shape = (*tensors[0].shape[:dim], len(owners), *tensors[0].shape[dim + 1 :])

    def element(place: tuple[int, ...]) -> str:
        number, row = owners[place[dim]]
        return tensors[number].at((*place[:dim], row, *place[dim + 1 :]))

    return _made(shape, element)


def permute(tensor: Tiny, order: Sequence[int]) -> Tiny:
    """Tensor.permute."""
    order = [_dimension(item, len(tensor.shape)) for item in order]
    if sorted(order) != list(range(len(tensor.shape))):
        raise NotATensor("permute with a wrong order")
    shape = [tensor.shape[item] for item in order]

    def element(place: tuple[int, ...]) -> str:
        source = [0] * len(order)
        for index, item in zip(place, order, strict=True):
            source[item] = index
        return tensor.at(source)

    return _made(shape, element)


def transpose(tensor: Tiny, first: int, second: int) -> Tiny:
    """Tensor.transpose."""
    order = list(range(len(tensor.shape)))
    one, two = (_dimension(item, len(order)) for item in (first, second))
    order[one], order[two] = order[two], order[one]
    return permute(tensor, order)


def chunk(tensor: Tiny, count: int, dim: int = 0) -> list[Tiny]:
    """Tensor.chunk into equal parts."""
    dim = _dimension(dim, len(tensor.shape))
    size, rest = divmod(tensor.shape[dim], count)
    if rest or not size:
        raise NotATensor("chunk into unequal parts")
    return [narrow(tensor, dim, number * size, size) for number in range(count)]


def narrow(tensor: Tiny, dim: int, start: int, length: int) -> Tiny:
    """Tensor.narrow."""
    shape = (*tensor.shape[:dim], length, *tensor.shape[dim + 1 :])
    return _made(shape, lambda place: tensor.at((*place[:dim], place[dim] + start, *place[dim + 1 :])))


def reshape(tensor: Tiny, *shape: Any) -> Tiny:
    """Tensor.reshape: the same elements in the same order."""
    wanted = list(shape[0] if isinstance(shape[0], (list, tuple)) else shape)
    if wanted.count(-1) == 1:
        rest = prod(size for size in wanted if size != -1)
        wanted[wanted.index(-1)] = len(tensor.data) // rest if rest else 0
    if not all(isinstance(size, int) and size >= 0 for size in wanted) or prod(wanted) != len(tensor.data):
        raise NotATensor("reshape to another number of elements")
    return Tiny(tuple(wanted), tensor.data)


def flatten(tensor: Tiny, start_dim: int = 0, end_dim: int = -1) -> Tiny:
    """Tensor.flatten."""
    first, last = (_dimension(dim, len(tensor.shape)) for dim in (start_dim, end_dim))
    return reshape(tensor, (*tensor.shape[:first], prod(tensor.shape[first : last + 1]), *tensor.shape[last + 1 :]))


def unsqueeze(tensor: Tiny, dim: int) -> Tiny:
    """Tensor.unsqueeze."""
    dim = _dimension(dim, len(tensor.shape) + 1)
    return Tiny((*tensor.shape[:dim], 1, *tensor.shape[dim:]), tensor.data)


def squeeze(tensor: Tiny, dim: int) -> Tiny:
    """Tensor.squeeze of one dimension."""
    dim = _dimension(dim, len(tensor.shape))
    return Tiny((*tensor.shape[:dim], *tensor.shape[dim + 1 :]), tensor.data) if tensor.shape[dim] == 1 else tensor


def split(tensor: Tiny, size: int | Sequence[int], dim: int = 0) -> list[Tiny]:
    """Tensor.split: into parts of a size, or of several sizes."""
    dim = _dimension(dim, len(tensor.shape))
    whole = tensor.shape[dim]
    sizes = [min(size, whole - start) for start in range(0, whole, size)] if isinstance(size, int) else list(size)
    if sum(sizes) != whole:
        raise NotATensor("split into other sizes")
    return [narrow(tensor, dim, sum(sizes[:number]), length) for number, length in enumerate(sizes)]


def unbind(tensor: Tiny, dim: int = 0) -> list[Tiny]:
    """Tensor.unbind."""
    dim = _dimension(dim, len(tensor.shape))
    return [squeeze(narrow(tensor, dim, number, 1), dim) for number in range(tensor.shape[dim])]


def select(tensor: Tiny, index: int) -> Tiny:
    """tensor[index]."""
    if not tensor.shape or not -tensor.shape[0] <= index < tensor.shape[0]:
        raise NotATensor("index out of range")
    inner = narrow(tensor, 0, index % tensor.shape[0], 1)
    return Tiny(inner.shape[1:], inner.data)


def _dimension(dim: int, rank: int) -> int:
    if not isinstance(dim, int) or not -rank <= dim < rank:
        raise NotATensor(f"no dimension {dim}")
    return dim % rank


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "stack": stack,
    "cat": cat,
    "concat": cat,
    "concatenate": cat,
    "transpose": transpose,
    "permute": permute,
    "chunk": chunk,
    "reshape": reshape,
    "flatten": flatten,
    "unsqueeze": unsqueeze,
    "squeeze": squeeze,
    "split": split,
    "unbind": unbind,
    "narrow": narrow,
    "vstack": lambda tensors: cat(tensors, 0),
}
_METHODS: dict[str, Callable[..., Any]] = {
    "transpose": transpose,
    "swapaxes": transpose,
    "permute": lambda tensor, *order: permute(tensor, order[0] if isinstance(order[0], (list, tuple)) else order),
    "chunk": chunk,
    "reshape": reshape,
    "view": reshape,
    "flatten": flatten,
    "unsqueeze": unsqueeze,
    "squeeze": squeeze,
    "split": split,
    "unbind": unbind,
    "narrow": narrow,
    "t": lambda tensor: transpose(tensor, 0, 1),
    "dim": lambda tensor: len(tensor.shape),
    "size": lambda tensor, dim=None: tensor.shape if dim is None else tensor.shape[dim],
    "numel": lambda tensor: len(tensor.data),
}


def function(name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """torch.<name>(...).

    Raises:
        NotATensor: it is not known, or not about such tensors.
    """
    given = {"dim" if key == "axis" else key: value for key, value in kwargs.items()}
    first = args[0] if args else given.pop("tensors", given.pop("input", None))
    about = first if isinstance(first, (list, tuple)) else [first]
    if name not in _FUNCTIONS or not about or not all(isinstance(item, Tiny) for item in about):
        raise NotATensor(name)
    return _tried(_FUNCTIONS[name], (first, *args[1:]), given)


def method(tensor: Tiny, name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """tensor.<name>(...).

    Raises:
        NotATensor: it is not known.
    """
    if name in _SAME:
        return tensor
    if name not in _METHODS:
        raise NotATensor(name)
    return _tried(_METHODS[name], (tensor, *args), kwargs)


def _tried(call: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    try:
        return call(*args, **kwargs)
    except (TypeError, ValueError, IndexError, AttributeError) as error:
        raise NotATensor(str(error)) from error
