"""Runs upstream's classes next to the reference of the kernel that replaces them: forward and gradient, on a toy."""

import importlib
from collections.abc import Callable, Mapping
from typing import Any

import torch
import transformers.modeling_utils  # which every modeling file imports: once, before the process is forked
from torch import nn

from omni_kit.targets.veomni.runtime.references import experts, load_balancing_loss, rms_norm, rotary, swiglu_mlp

_CLOSE = 1e-4
_SEEN = 0.37
"""An epsilon and a limit that are seen in the numbers."""

Pair = tuple[Any, Any, list[torch.Tensor]]
"""What upstream computes, what the kernel computes, and the tensors whose gradients count."""


def try_sites(job: Mapping[str, Any]) -> list[str | None]:
    """Compare upstream's code with the kernels.

    Args:
        job: `module` and `class` of the model, its small `config` with its model_type, and `sites`: dicts of `site`,
            `owner` (the class or function) and `epsilon`.

    Returns:
        For each site where the two differ, an empty text where they agree, None where the toy does not build the class.
    """
    modeling = importlib.import_module(job["module"])
    config = transformers.AutoConfig.for_model(**job["config"])
    config._experts_implementation = config._attn_implementation = "eager"
    built = getattr(modeling, job["class"])(config)
    config._experts_implementation = "eager"  # else the experts' decorator takes another function
    parts = {type(one).__name__: one for one in built.modules()}
    return [_outcome(modeling, parts, site) for site in job["sites"]]


def _outcome(modeling: Any, parts: Mapping[str, nn.Module], site: Mapping[str, str]) -> str | None:
    owner = parts.get(site["owner"]) or getattr(modeling, site["owner"], None)
    if owner is None or isinstance(owner, type):
        return None
    torch.manual_seed(0)
    for parameter in owner.parameters() if isinstance(owner, nn.Module) else ():
        parameter.requires_grad_().data = torch.randn(parameter.shape) * 0.5
    found, wanted, leaves = _PAIRS[site["site"]](owner, site["epsilon"])
    for one, other in zip(_tensors(found), _tensors(wanted), strict=True):
        if one.shape != other.shape or one.dtype != other.dtype:
            return f"{one.dtype} {list(one.shape)} instead of {other.dtype} {list(other.shape)}"
    for what, (one, other) in {"forward": (found, wanted), "gradient": _gradients(found, wanted, leaves)}.items():
        pairs = list(zip(_tensors(one), _tensors(other), strict=True))
        off = max(_off(a.detach(), b.detach()) for a, b in pairs)
        if not off < _CLOSE:
            return f"{what} off by {off:.1e}"
    return ""


def _off(found: torch.Tensor, wanted: torch.Tensor) -> float:
    return float((found - wanted).abs().max() / wanted.abs().max().clamp(min=1e-9))


def _tensors(value: Any) -> list[torch.Tensor]:
    return [value] if isinstance(value, torch.Tensor) else list(value)


def _gradients(found: Any, wanted: Any, leaves: list[torch.Tensor]) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """The gradients of both, each output weighted differently from place to place."""

    def of(value: Any) -> list[torch.Tensor]:
        total = torch.stack([(one * (1 + torch.arange(one.numel()).reshape(one.shape) % 3)).sum() for one in value])
        given = torch.autograd.grad(total.sum(), leaves, allow_unused=True)
        return [torch.zeros(()) if one is None else one for one in given]

    return of(_tensors(found)), of(_tensors(wanted))


def _tensor(*shape: int) -> torch.Tensor:
    return torch.randn(*shape).requires_grad_()


def _norm(norm: Any, epsilon: str) -> Pair:
    setattr(norm, epsilon, _SEEN)
    given = _tensor(2, 5, norm.weight.shape[0])
    return norm(given), rms_norm(given, norm.weight, _SEEN), [given, norm.weight]


def _mlp(mlp: Any, epsilon: str) -> Pair:
    given = _tensor(2, 5, mlp.gate_proj.weight.shape[-1])
    return mlp(given), swiglu_mlp(mlp, given), [given, *mlp.parameters()]


def _experts(module: Any, epsilon: str) -> Pair:
    if getattr(module, "limit", None) is not None:
        module.limit = _SEEN
    count, _, width = module.gate_up_proj.shape
    given, weights = _tensor(9, width), _tensor(9, 2)
    chosen = torch.stack([torch.randperm(count)[:2] for _ in range(9)])
    leaves = [given, weights, *module.parameters()]
    return module(given, chosen, weights), experts(module, given, chosen, weights), leaves


def _rotary(function: Any, epsilon: str) -> Pair:
    heads = [_tensor(2, count, 5, 8) for count in (4, 2)]
    tables = [torch.cat([one, one], -1) for one in (torch.randn(2, 5, 4), torch.randn(2, 5, 4))]
    return function(*heads, *tables), rotary(heads[0], heads[1], tables[0], tables[1]), heads


def _balancing(function: Any, epsilon: str) -> Pair:
    logits = tuple(_tensor(6, 4) for _ in range(2))
    masks = (None, torch.tensor([[1, 1, 0], [1, 1, 1]]))
    found, wanted = ([one(logits, 4, 2, mask) for mask in masks] for one in (function, load_balancing_loss))
    return found, wanted, list(logits)


_PAIRS: Mapping[str, Callable[[Any, str], Pair]] = {
    "rms-norm": _norm, "swiglu-mlp": _mlp, "experts": _experts, "rotary": _rotary, "load-balancing-loss": _balancing,
}  # fmt: skip
