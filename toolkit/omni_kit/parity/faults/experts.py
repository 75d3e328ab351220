"""Faults of feed-forward parts: stacked experts, activations and the router."""

import ast
from collections.abc import Callable
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
    left_as_initialised,
    own_parameter,
    set_to,
)
from omni_kit.parity.faults.source import CodeSite, functions_of, parsed

_SCALED = 1.01


def _gate_up(module: nn.Module) -> torch.Tensor | None:
    """Return the stacked gate and up weights: the one of two stacked parameters that is twice as tall as the other is
    wide.
    """
    stacked = _stacked(module)
    pairs = ((one, other) for one in stacked for other in stacked if one is not other)
    return next((one for one, other in pairs if one.shape[1] == 2 * other.shape[2]), None)


def _to_gate_up(change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[nn.Module], Undo]:
    def plant(module: nn.Module) -> Undo:
        weights = _gate_up(module)
        assert weights is not None
        return set_to(iter([(weights, change(weights))]))

    return plant


def _swapped(weights: torch.Tensor) -> torch.Tensor:
    return torch.cat(weights.chunk(2, dim=1)[::-1], dim=1)


def _interleaved(weights: torch.Tensor) -> torch.Tensor:
    return torch.stack(weights.chunk(2, dim=1), dim=2).flatten(1, 2)


def _stacked(module: nn.Module) -> list[torch.Tensor]:
    """Return weights of several experts in one; a convolution of torch's own has three axes, too."""
    if type(module).__module__.startswith("torch."):
        return []
    return [p for p in module._parameters.values() if p is not None and p.dim() == 3 and len(p) > 1]


def _to_stacked(change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[nn.Module], Undo]:
    return lambda module: set_to(iter([(weights, change(weights)) for weights in _stacked(module)[-1:]]))


def _routes(site: CodeSite) -> bool:
    """Return whether the module chooses among experts."""
    named = (ast.unparse(parsed(function)) for function in functions_of(site.module))
    return any("topk(" in text for text in named)


def _in_router(fits: Callable[[CodeSite], bool]) -> Callable[[CodeSite], bool]:
    return lambda site: fits(site) and _routes(site)


def _first_chosen_twice(right: Any, function: Any, *_: Any, **__: Any) -> Any:
    """The last choice is the first one once more."""
    if not isinstance(right, tuple) or right[1].shape[-1] < 2:
        return INAPPLICABLE
    values, chosen = (torch.cat([part[..., :-1], part[..., :1]], dim=-1) for part in right)
    return values, chosen


def _another_activation(right: torch.Tensor, function: Any, given: torch.Tensor, *_: Any) -> torch.Tensor:
    gelu = nn.functional.gelu(given)
    return nn.functional.silu(given) if torch.allclose(gelu, right) else gelu


def _one_expert_scaled(right: torch.Tensor) -> torch.Tensor:
    scales = torch.ones(len(right), *[1] * (right.dim() - 1), dtype=right.dtype, device=right.device)
    scales[-1] = _SCALED
    return right * scales


def _reads_stacked(site: CodeSite) -> bool:
    parameter = own_parameter(site)
    return any(parameter is weights for weights in _stacked(site.module))


def _unclamped(right: Any, function: Any, *given: Any, **_: Any) -> Any:
    value = getattr(function, "__self__", None)
    value = value if isinstance(value, torch.Tensor) else next(iter(given), None)
    return value if isinstance(value, torch.Tensor) and value.is_floating_point() else INAPPLICABLE


def _softmax_again(right: Any, *_: Any, **__: Any) -> Any:
    return right.softmax(-1) if isinstance(right, torch.Tensor) else INAPPLICABLE


EXPERTS: tuple[Fault, ...] = (
    StateFault("expert-gate-and-up-swapped", lambda m: _gate_up(m) is not None, _to_gate_up(_swapped)),
    StateFault("expert-gate-and-up-interleaved", lambda m: _gate_up(m) is not None, _to_gate_up(_interleaved)),
    StateFault("expert-transposed", lambda m: bool(_stacked(m)), _to_stacked(lambda w: w.mT.reshape(w.shape))),
    StateFault("experts-in-another-order", lambda m: bool(_stacked(m)), _to_stacked(lambda w: w.roll(1, 0))),
    StateFault("experts-left-as-initialised", lambda m: bool(_stacked(m)), _to_stacked(left_as_initialised)),
    CodeFault("one-expert-scaled", "value", _reads_stacked, _one_expert_scaled),
    CodeFault("another-activation", "call", calls("act_fn|act|activation_fn|hidden_act"), _another_activation),
    CodeFault("up-not-multiplied", "binary", combines(ast.Mult, r"act\w*\("), lambda right, left, up: left),
    CodeFault("clamp-dropped", "call", calls("clamp_?"), _unclamped),
    CodeFault("softmax-twice", "call", calls("softmax"), _softmax_again),
    CodeFault("shared-expert-dropped", "binary", combines(ast.Add, right="shared"), lambda right, left, shared: left),
)
ROUTER: tuple[Fault, ...] = (
    CodeFault(
        "chosen-weights-not-normalised",
        "binary",
        _in_router(combines(ast.Div, right=r"\.sum\(|denominator")),
        lambda right, left, total: left,
    ),
    CodeFault(
        "choice-bias-dropped", "binary", _in_router(combines(ast.Add, right="bias")), lambda right, left, b: left
    ),
    CodeFault("expert-chosen-twice", "call", calls("topk"), _first_chosen_twice),
)
