"""Faults that a conversion of weights brings: every shape is right, and the numbers are in the wrong places.

No round trip shows them, so they are asked of what the model computes.
"""

import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations

import torch
from torch import nn

from omni_kit.parity.faults.kinds import Fault, StateFault, Undo, set_to

_ROPE = re.compile(r"rot|rope|freqs|angle|\bcos\b")
_QUERY, _KEY = ("to_q", "q_proj", "wq", "query"), ("to_k", "k_proj", "wk", "key")
_MOST_CHUNKS = 12
_HEAD_WIDTHS = ("head_dim", "dim_head", "attention_head_dim")
_HEADS = ("heads", "num_heads", "n_heads", "num_attention_heads")

Pair = tuple[str, str]


def _parts(module: nn.Module) -> dict[str, nn.Module]:
    """Return the parts of a module that hold parameters themselves."""
    return {name: part for name, part in module.named_children() if any(True for _ in part.parameters(recurse=False))}


def _alike(one: nn.Module, other: nn.Module) -> bool:
    """Return whether what one holds could stand in the other, and would change something."""
    first, second = dict(one.named_parameters(recurse=False)), dict(other.named_parameters(recurse=False))
    same = type(one) is type(other) and first.keys() == second.keys()
    return same and all(first[name].shape == second[name].shape for name in first)


def _pairs(module: nn.Module, of: Callable[[str, nn.Module], bool]) -> Iterator[Pair]:
    """Yield the parts of a sort that could be taken for each other."""
    known = {name: part for name, part in _parts(module).items() if of(name, part)}
    for (first, one), (second, other) in combinations(known.items(), 2):
        if _alike(one, other):
            yield first, second


def _is_norm(name: str, part: nn.Module) -> bool:
    return "norm" in type(part).__name__.lower()


def _is_linear(name: str, part: nn.Module) -> bool:
    return isinstance(part, nn.Linear)


def _swapping(name: str, of: Callable[[str, nn.Module], bool], last: bool = False) -> StateFault:
    """The first pair of a sort is swapped, or the last one."""

    def pair(module: nn.Module) -> Pair | None:
        found = list(_pairs(module, of))
        return None if not found or (last and len(found) < 2) else found[-1 if last else 0]

    def plant(module: nn.Module) -> Undo:
        first, second = (module.get_submodule(one) for one in pair(module) or ())
        mine, theirs = list(first.parameters(recurse=False)), list(second.parameters(recurse=False))
        there, back = zip(mine, theirs, strict=True), zip(theirs, mine, strict=True)
        kept = [(one, other.detach().clone()) for one, other in (*there, *back)]
        return set_to(iter(kept))

    return StateFault(name, lambda m: pair(m) is not None, plant, stored=False, holders=lambda m: pair(m) or ())


def _chunks(name: str, part: nn.Module) -> int:
    """Return the number of equally wide outputs that a layer computes at once; 0 for a single one."""
    if not isinstance(part, nn.Linear) or part.out_features % part.in_features:
        return 0
    count = part.out_features // part.in_features
    return count if 2 <= count <= _MOST_CHUNKS else 0


def _chunked(module: nn.Module) -> str:
    return next((name for name, part in _parts(module).items() if _chunks(name, part)), "")


def _halved(module: nn.Module) -> str:
    """Return a layer whose answer is twice as wide as what another one takes: a gate next to what it gates."""
    linear = {name: part for name, part in _parts(module).items() if isinstance(part, nn.Linear)}
    for name, part in linear.items():
        if any(part.out_features == 2 * other.in_features for other in linear.values() if other is not part):
            return name
    return ""


def _reordered(
    find: Callable[[nn.Module], str], order: Callable[[nn.Linear], Sequence[int]]
) -> Callable[[nn.Module], Undo]:
    """Plants another order of the chunks of a layer's rows."""

    def plant(module: nn.Module) -> Undo:
        part = module.get_submodule(find(module))
        assert isinstance(part, nn.Linear)
        places = order(part)
        changes = [
            (tensor, torch.cat([tensor.detach().chunk(len(places))[place] for place in places]))
            for tensor in part.parameters(recurse=False)
        ]
        return set_to(iter(changes))

    return plant


def _first_two(part: nn.Linear) -> Sequence[int]:
    count = part.out_features // part.in_features
    return [1, 0, *range(2, count)]


def _named(module: nn.Module, names: Sequence[str]) -> str:
    return next((name for name in names if isinstance(getattr(module, name, None), nn.Linear)), "")


def _rotated(module: nn.Module) -> tuple[str, ...]:
    """Return the projections of queries and keys, where their heads are turned by positions."""
    query, key = _named(module, _QUERY), _named(module, _KEY)
    if not query or not key or not _head_width(module, query):
        return ()
    computes = [type(module), type(getattr(module, "processor", module))]
    return (query, key) if any(_ROPE.search(inspect.getsource(cls)) for cls in computes) else ()


def _head_width(module: nn.Module, query: str) -> int:
    """Return a head's width: the module's own value, or the width of its norm; 0 if unknown."""
    whole = module.get_submodule(query)
    assert isinstance(whole, nn.Linear)
    widths = [getattr(module, name, 0) for name in _HEAD_WIDTHS]
    widths += [
        whole.out_features // count for name in _HEADS if isinstance(count := getattr(module, name, 0), int) and count
    ]
    widths += [
        p.numel() for n, part in _parts(module).items() if _is_norm(n, part) for p in part.parameters(recurse=False)
    ]
    fitting = [
        one for one in widths if isinstance(one, int) and one > 2 and one % 2 == 0 and whole.out_features % one == 0
    ]
    return fitting[0] if fitting else 0


def _other_rope(module: nn.Module) -> Undo:
    """Return the rows of each head as the other convention of rotary positions has them."""
    names = _rotated(module)
    width = _head_width(module, names[0])
    changes = []
    for name in names:
        for tensor in module.get_submodule(name).parameters(recurse=False):
            heads = tensor.detach().reshape(-1, width // 2, 2, *tensor.shape[1:])
            changes.append((tensor, heads.transpose(1, 2).reshape(tensor.shape)))
    return set_to(iter(changes))


CONVERSION: tuple[Fault, ...] = (
    _swapping("norms-swapped", _is_norm),
    _swapping("layers-swapped", _is_linear),
    _swapping("last-layers-swapped", _is_linear, last=True),
    StateFault(
        "chunks-out-of-order", lambda m: bool(_chunked(m)), _reordered(_chunked, _first_two), stored=False,
        holders=lambda m: (_chunked(m),),
    ),
    StateFault(
        "gate-and-value-swapped", lambda m: bool(_halved(m)), _reordered(_halved, lambda _: (1, 0)), stored=False,
        holders=lambda m: (_halved(m),),
    ),
    StateFault(
        "rotary-rows-of-the-other-kind", lambda m: bool(_rotated(m)), _other_rope, stored=False, holders=_rotated
    ),
)  # fmt: skip
