"""Faults of attention: masks, scores, heads and rotary positions."""

import ast
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from omni_kit.parity.faults.kinds import (
    INAPPLICABLE,
    CodeFault,
    Fault,
    StateFault,
    Undo,
    calls,
    combines,
    has,
    parts,
    reads,
    set_attribute,
    set_to,
)

_ROTARY = r"_?apply_(rotary|rope)\w*"


def _next_token_seen(right: Any, scores: torch.Tensor, mask: torch.Tensor) -> Any:
    """Each token may look at what its successor may look at."""
    if mask.dim() < 2 or mask.shape[-2] < 2:
        return INAPPLICABLE
    return scores + torch.cat([mask[..., 1:, :], mask[..., -1:, :]], dim=-2)


def _keys_not_rotated(right: Any, function: Any, *given: Any, **named: Any) -> Any:
    if isinstance(right, tuple) and len(right) == 2 and len(given) > 1:
        return right[0], given[1].to(right[1].dtype).reshape(right[1].shape)
    return given[0] if isinstance(right, torch.Tensor) and given[0].shape == right.shape else INAPPLICABLE


def _half_rotated(right: Any, function: Any, *given: Any, **named: Any) -> Any:
    """Return only the first half of each head, as a model with partial rotary positions has it."""
    rotated = right if isinstance(right, tuple) else (right,)
    if len(rotated) > len(given) or any(not isinstance(r, torch.Tensor) for r in rotated):
        return INAPPLICABLE
    mixed = tuple(
        torch.cat([r[..., : r.shape[-1] // 2], g.reshape(r.shape)[..., r.shape[-1] // 2 :]], dim=-1)
        for r, g in zip(rotated, given, strict=False)
    )
    return mixed if isinstance(right, tuple) else mixed[0]


def _wholly_rotated(right: Any, function: Any, *given: Any, **named: Any) -> Any:
    """Return the angles of the rotated part, repeated over the whole head."""
    if len(given) < 4 or not all(isinstance(g, torch.Tensor) for g in given[:4]):
        return INAPPLICABLE
    query, key, cos, sin = given[:4]
    width = query.shape[-1]
    if cos.shape[-1] >= width or width % cos.shape[-1] or (width == 2 * cos.shape[-1] and _splits(right, given)):
        return INAPPLICABLE
    repeats = [1] * (cos.dim() - 1) + [width // cos.shape[-1]]
    return function(query, key, cos.repeat(repeats), sin.repeat(repeats), *given[4:], **named)


def _splits(right: Any, given: tuple[Any, ...]) -> bool:
    """Return whether cos and sin hold each angle once, so that half the width means the whole head."""
    half = given[0].shape[-1] // 2
    return not torch.equal(right[0][..., half:], given[0][..., half:])


def _neighbours_rotated(right: torch.Tensor, function: Any, given: torch.Tensor) -> torch.Tensor:
    """Neighbours are a pair, instead of the two halves."""
    return torch.stack([-given[..., 1::2], given[..., 0::2]], dim=-1).flatten(-2)


def _heads_in_turn(right: torch.Tensor, function: Any, heads: torch.Tensor, times: int, *_: Any) -> Any:
    return heads.repeat(1, times, 1, 1) if times > 1 and heads.shape[1] > 1 else INAPPLICABLE


def _rows_by_pair(weight: torch.Tensor, width: int) -> torch.Tensor:
    """Return the rows of each head, first half and second half in turn: the order of the original LLaMA files."""
    heads = weight.reshape(-1, 2, width // 2, *weight.shape[1:])
    return heads.transpose(1, 2).reshape(weight.shape)


def _head_width(module: nn.Module) -> int:
    width = getattr(module, "head_dim", 0)
    return width if isinstance(width, int) and width % 2 == 0 else 0


def _unpermute(module: nn.Module) -> Undo:
    def changes() -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        for name in ("q_proj", "k_proj"):
            for tensor in module.get_submodule(name).parameters():
                yield tensor, _rows_by_pair(tensor, _head_width(module))

    return set_to(changes())


def _rotates_halves(module: nn.Module) -> bool:
    names = ("q_proj", "k_proj")
    projections = [getattr(module, name, None) for name in names]
    width = _head_width(module)
    return width > 2 and all(isinstance(part, nn.Linear) and part.out_features % width == 0 for part in projections)


def _swap(first: str, second: str) -> Callable[[nn.Module], Undo]:
    """Plants the weights of each of two parts into the other."""

    def plant(module: nn.Module) -> Undo:
        one, other = getattr(module, first), getattr(module, second)
        mine, theirs = one.weight.detach().clone(), other.weight.detach().clone()
        return set_to(iter([(one.weight, theirs), (other.weight, mine)]))

    return plant


def _flag(name: str, expected: type, value: Any) -> StateFault:
    """Return an attribute that attention is called with."""

    def fits(module: nn.Module) -> bool:
        held = vars(module).get(name)
        return isinstance(held, expected) and bool(held)

    kinds = {"is_causal": "not-causal", "sliding_window": "window-forgotten"}
    return StateFault(kinds[name], fits, lambda module: set_attribute(module, name, value), stored=False)


ATTENTION: tuple[Fault, ...] = (
    CodeFault("mask-dropped", "binary", combines(ast.Add, "attn|score", "mask"), lambda right, left, mask: left),
    CodeFault("mask-of-next-token", "binary", combines(ast.Add, "attn|score", "mask"), _next_token_seen),
    CodeFault("scale-dropped", "binary", combines(ast.Mult, right=r"scal(e|ing)\w*$"), lambda right, left, scale: left),
    CodeFault("rotary-missing-on-keys", "call", calls(_ROTARY), _keys_not_rotated),
    CodeFault("rotary-on-half-of-each-head", "call", calls(_ROTARY), _half_rotated),
    CodeFault("partial-rotary-as-full", "call", calls(_ROTARY), _wholly_rotated),
    CodeFault("rotary-pairs-neighbours", "call", calls("rotate_half"), _neighbours_rotated),
    CodeFault("key-heads-in-turn", "call", calls("repeat_kv"), _heads_in_turn),
    CodeFault("sinks-lost", "value", reads("sinks"), lambda right: right - 4),
    CodeFault("residual-dropped", "binary", combines(ast.Add, "^residual$"), lambda right, left, added: added),
    StateFault("rotary-permutation-missing", _rotates_halves, _unpermute, holders=parts("q_proj", "k_proj")),
    StateFault(
        "key-and-value-swapped", has("k_proj", "v_proj"), _swap("k_proj", "v_proj"), holders=parts("k_proj", "v_proj")
    ),
    StateFault(
        "gate-and-up-swapped",
        has("gate_proj", "up_proj"),
        _swap("gate_proj", "up_proj"),
        holders=parts("gate_proj", "up_proj"),
    ),
    _flag("is_causal", bool, False),
    _flag("sliding_window", int, None),
)
