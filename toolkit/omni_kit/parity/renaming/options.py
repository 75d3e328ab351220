"""Options of a layer: every upstream layer with the same input, and every way of using its tensors."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations, product

import torch

from omni_kit.parity.renaming.holders import Holder, matched, order_of_columns, patches
from omni_kit.parity.renaming.moves import (
    AS_IT_IS,
    TensorTransform,
    columns,
    elements,
    joined,
    orders,
    rows,
    rows_by_head,
    shaped,
    then,
)

_MOST_SHARES = 12
_MOST_CHUNKS = 6  # of which every order is tried


@dataclass(frozen=True)
class Option:
    """One choice for all tensors that a module holds.

    Attributes:
        sources: name here -> upstream's tensors, by their whole names.
        way: what is done to each.
        effort: how unlikely it is: 0 for what is plain.
    """

    sources: Mapping[str, tuple[str, ...]]
    way: Mapping[str, TensorTransform]
    effort: int

    def made(self, state: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Return the tensors."""
        return {
            name: self.way[name].make(*(state[source] for source in sources)) for name, sources in self.sources.items()
        }

    def moves(self) -> int:
        """Return the complexity of its transformations, as the length of their text."""
        return sum(len(way.text) for way in self.way.values())

    def key(self) -> tuple[tuple[str, ...], ...]:
        """Return the parts of the tensors that it uses."""
        return tuple((*sources, self.way[name].part) for name, sources in sorted(self.sources.items()))


def options_for(
    own: Mapping[str, torch.Tensor], fed: torch.Tensor | None, occurrence: int, holders: Sequence[Holder],
    heads: Sequence[int], rotary: TensorTransform | None,
) -> list[Option]:  # fmt: skip
    """Return the options of a module, the likeliest first.

    Args:
        own: what it holds.
        fed: what it is given in a call; None if it is given no tensor.
        occurrence: how many calls came before.
        heads: how many heads the model may have.
        rotary: what is done to rows of queries and keys, where the two sides have other conventions.
    """
    found: list[Option] = []
    lone = all(tensor.dim() < 2 for tensor in own.values())
    patch = next((tuple(one.shape[2:]) for one in own.values() if one.dim() > 3), ())
    if fed is not None and patch and not any(_fed_alike(one, fed, occurrence) for one in holders):
        fed = patches(fed, patch)
    alike = [one for one in holders if _fed_alike(one, fed, occurrence)]
    several = len([one for one in alike if own.keys() <= one.tensors.keys()]) > 1
    for holder in alike:
        found += _of_one(own, holder, AS_IT_IS, heads, rotary, several)
    found += _of_several(own, alike)
    if not found and fed is not None:
        for holder in holders:
            order = _columns_of(holder, fed, occurrence)
            if order is not None:
                found += _of_one(own, holder, elements(order) if lone else columns(order), heads)
    for holder in (one for one in holders if not one.inputs):  # its own code was never asked: what is around it uses it
        found += [_harder(one) for one in _of_one(own, holder, AS_IT_IS, heads)]
    return sorted(found, key=lambda one: one.effort)


def _columns_of(holder: Holder, fed: torch.Tensor, occurrence: int) -> list[int] | None:
    """In which order upstream's module had the columns of what a module is fed; None if it had others."""
    given = holder.inputs[occurrence] if len(holder.inputs) > occurrence else []
    orders_found = (order_of_columns(fed, one, holder.patch) for one in given[:1])
    return next((order for order in orders_found if order is not None), None)


def _harder(one: Option) -> Option:
    return Option(one.sources, one.way, one.effort + 1)


def _fed_alike(holder: Holder, fed: torch.Tensor | None, occurrence: int) -> bool:
    if fed is None or len(holder.inputs) <= occurrence:
        return fed is None and bool(holder.inputs)
    return any(matched(fed, one, holder.patch) for one in holder.inputs[occurrence])


def _of_one(
    own: Mapping[str, torch.Tensor], holder: Holder, before: TensorTransform, heads: Sequence[int],
    rotary: TensorTransform | None = None, several: bool = False,
) -> Iterator[Option]:  # fmt: skip
    """All that a module holds is of one of upstream's."""
    for names in _paired(own, holder):
        there = {name: holder.tensors[other] for name, other in names.items()}
        for way, effort in _ways(own, there, heads, rotary, several):
            whole = {name: (f"{holder.name}.{other}".lstrip("."),) for name, other in names.items()}
            for chosen in _for_each(own, {name: holder.tensors[other] for name, other in names.items()}, before, way):
                option = Option(whole, chosen, effort + int(before is not AS_IT_IS))
                if effort or _fits(own, option, holder):  # what is reordered keeps its shape
                    yield option


def _for_each(
    own: Mapping[str, torch.Tensor], there: Mapping[str, torch.Tensor], before: TensorTransform, way: TensorTransform
) -> Iterator[dict[str, TensorTransform]]:
    """Yield the transformations of every tensor, as far as they fit: each share where one is a share of another."""
    lone = all(tensor.dim() < 2 for tensor in own.values())
    chosen = {
        name: then(before, way) if lone or tensor.dim() > 1 else way.vector or way for name, tensor in own.items()
    }
    shared = [
        name for name, tensor in own.items()
        if way is AS_IT_IS and tensor.dim() and there[name].shape[0] > tensor.shape[0]
    ]  # fmt: skip
    share = there[shared[0]].shape[0] // own[shared[0]].shape[0] if shared else 1
    for index in range(min(share, _MOST_SHARES)):
        yield chosen | dict.fromkeys(shared, rows(index, share))


def _fits(own: Mapping[str, torch.Tensor], option: Option, holder: Holder) -> bool:
    prefix = f"{holder.name}." if holder.name else ""
    try:
        made = option.made({f"{prefix}{name}": tensor for name, tensor in holder.tensors.items()})
    except (RuntimeError, IndexError, ValueError):
        return False
    return all(made[name].shape == own[name].shape for name in own)


def _paired(own: Mapping[str, torch.Tensor], holder: Holder) -> Iterator[dict[str, str]]:
    """Yield names here -> names there: the same ones, or in the same order where as many are held."""
    if own.keys() <= holder.tensors.keys():
        yield {name: name for name in own}
    elif len(own) == len(holder.tensors) and not any(other.endswith(name) for name in own for other in holder.tensors):
        yield dict(zip(own, holder.tensors, strict=True))
    elif len(own) <= len(holder.tensors):  # torch's own attention holds the weights of three layers itself
        ending = [[other for other in holder.tensors if other.endswith(name)] for name in own]
        yield from (dict(zip(own, chosen, strict=True)) for chosen in product(*ending))


def _ways(
    own: Mapping[str, torch.Tensor], there: Mapping[str, torch.Tensor], heads: Sequence[int],
    rotary: TensorTransform | None, several: bool,
) -> Iterator[tuple[TensorTransform, int]]:  # fmt: skip
    """Yield the transformations for the tensors of one module, each with how unlikely it is.

    Args:
        several: more than one of upstream's layers was fed the same, as those of queries and keys are.
    """
    name = next(iter(own))
    mine, theirs = own[name], there[name]
    if mine.shape == theirs.shape:
        yield AS_IT_IS, 0
    elif mine.numel() == theirs.numel():
        yield shaped(mine.shape), 0
    if not mine.dim() or not theirs.dim() or mine.numel() == 0:
        return
    share, rest = divmod(theirs.shape[0], mine.shape[0])
    if not rest and 1 < share <= _MOST_SHARES:
        for index in range(share):
            by_head = [rows_by_head(index, share, count) for count in heads if mine.shape[0] % count == 0]
            for effort, way in enumerate([rows(index, share), *by_head]):
                if rotary is not None:
                    yield then(way, rotary), min(effort, 1)
                yield way, min(effort, 1)
    if all(own[one].shape == there[one].shape for one in own) and mine.dim() <= 2:
        if rotary is not None and several and mine.dim() == 2 and not chunks(mine):
            yield rotary, -1
        yield from _reordered(mine)


def chunks(mine: torch.Tensor) -> list[int]:
    """Into how many answers of their own a layer's answer may fall: two, or as many as it is wider than its input."""
    if mine.dim() != 2 or mine.shape[0] == mine.shape[1]:
        return []
    wider = [mine.shape[0] // mine.shape[1]] if mine.shape[0] % mine.shape[1] == 0 else []
    return [count for count in dict.fromkeys([2, *wider]) if count > 1 and mine.shape[0] % count == 0]


def _reordered(mine: torch.Tensor) -> Iterator[tuple[TensorTransform, int]]:
    """Chunks in other orders: two halves, or as many as a layer's answer is wider than what it is fed."""
    for count in chunks(mine):
        if count <= _MOST_CHUNKS:
            for number, way in enumerate(orders(count)):
                yield way, 1 + (number > 0) + (number > 15)


def _of_several(own: Mapping[str, torch.Tensor], alike: Sequence[Holder]) -> Iterator[Option]:
    """Yield options in which a module holds several of upstream's tensors, one below the other."""
    name = next(iter(own))
    for count in (2, 3):
        parts = [
            one for one in alike
            if own.keys() == one.tensors.keys() and one.tensors[name].shape[:1] and own[name].dim()
            and one.tensors[name].shape[0] * count == own[name].shape[0]
            and one.tensors[name].shape[1:] == own[name].shape[1:]
        ]  # fmt: skip
        for chosen in permutations(parts, count) if len(parts) <= 4 else ():
            sources = {own_name: tuple(f"{one.name}.{own_name}".lstrip(".") for one in chosen) for own_name in own}
            yield Option(sources, dict.fromkeys(own, joined()), 0)
