"""Transformations that make a tensor from upstream's, each as a computation and as its source text."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, permutations

import torch

Make = Callable[..., torch.Tensor]
_MOST_ORDERS = 720


@dataclass(frozen=True)
class TensorTransform:
    """Something that is done to one tensor, or to several.

    Attributes:
        text: an expression of `one`, or of `parts`, that a script can have.
        make: the same.
        vector: what is done to a vector next to the matrix; None for the same.
        part: which share of the tensor is taken; empty for all of it.
    """

    text: str
    make: Make
    vector: "TensorTransform | None" = None
    part: str = ""


AS_IT_IS = TensorTransform("one", lambda one: one)


def rows(index: int, count: int) -> TensorTransform:
    """Return one of several shares of a tensor's rows."""
    return TensorTransform(
        f"one.chunk({count})[{index}]", lambda one: one.chunk(count)[index], part=f"{index} of {count}"
    )


def rows_by_head(index: int, count: int, heads: int) -> TensorTransform:
    """Take one of several shares that alternate head by head."""
    return TensorTransform(
        f"one.unflatten(0, ({heads}, {count}, -1))[:, {index}].flatten(0, 1)",
        lambda one: one.unflatten(0, (heads, count, -1))[:, index].flatten(0, 1),
        part=f"{index} of {count} of {heads}",
    )


def joined() -> TensorTransform:
    """Several tensors, one below the other."""
    return TensorTransform("torch.cat(parts)", lambda *parts: torch.cat(parts))


def in_order(order: Sequence[int]) -> TensorTransform:
    """The shares of a tensor's rows in another order."""
    shown = ", ".join(map(str, order))
    return TensorTransform(
        f"torch.cat([one.chunk({len(order)})[at] for at in ({shown})])",
        lambda one: torch.cat([one.chunk(len(order))[at] for at in order]),
    )


def halves(width: int) -> TensorTransform:
    """Heads whose rotary pairs are neighbours, as pairs that are halves."""
    return TensorTransform(
        f"one.unflatten(0, (-1, {width // 2}, 2)).transpose(1, 2).flatten(0, 2)",
        lambda one: one.unflatten(0, (-1, width // 2, 2)).transpose(1, 2).flatten(0, 2),
    )


def neighbours(width: int) -> TensorTransform:
    """Heads whose rotary pairs are halves, as pairs that are neighbours."""
    return TensorTransform(
        f"one.unflatten(0, (-1, 2, {width // 2})).transpose(1, 2).flatten(0, 2)",
        lambda one: one.unflatten(0, (-1, 2, width // 2)).transpose(1, 2).flatten(0, 2),
    )


def rotary_ways(heads: Sequence[int], width: int) -> list[TensorTransform]:
    """The other conventions of rotary positions, for each number of heads that a width can have."""
    widths = dict.fromkeys(width // count for count in heads if width % count == 0)
    return [way for one in widths if one > 2 and one % 2 == 0 for way in (halves(one), neighbours(one))]


def columns(order: Sequence[int]) -> TensorTransform:
    """Return the columns of a matrix in another order."""
    places = list(order)
    return TensorTransform(f"one.flatten(1)[:, {places}]", lambda one: one.flatten(1)[:, places], AS_IT_IS)


def elements(order: Sequence[int]) -> TensorTransform:
    """Return the elements of a vector in another order."""
    places = list(order)
    return TensorTransform(f"one[{places}]", lambda one: one[places])


def shaped(shape: Sequence[int]) -> TensorTransform:
    """Reshape a tensor."""
    return TensorTransform(f"one.reshape({tuple(shape)})", lambda one: one.reshape(tuple(shape)), AS_IT_IS)


def then(first: TensorTransform, second: TensorTransform) -> TensorTransform:
    """Return one after the other."""
    if first is AS_IT_IS:
        return second
    if second is AS_IT_IS:
        return first
    text = second.text.replace("one", f"({first.text})", 1)
    return TensorTransform(text, lambda *given: second.make(first.make(*given)), part=first.part or second.part)


def _farthest(order: Sequence[int]) -> int:
    """Return the largest distance that a share is moved."""
    return max(abs(one - at) for at, one in enumerate(order))


def orders(count: int) -> Iterator[TensorTransform]:
    """The shares of a tensor's rows in every other order: first those that swap neighbours, as scale and shift are."""
    plain = tuple(range(count))
    found = [order for order in islice(permutations(plain), _MOST_ORDERS) if order != plain]
    found.sort(key=lambda order: (_farthest(order) > 1, sum(one != at for at, one in enumerate(order))))
    yield from map(in_order, found)
