"""Check whether the kernel that a wrapper gives its processors computes what diffusers' own does, however it is
asked.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from diffusers.models.attention_dispatch import dispatch_attention_fn
from torch import nn

from omni_kit.targets.veomni.dit.train import processors_of
from omni_kit.targets.veomni.dit.transformer import DISPATCH
from omni_kit.targets.veomni.runtime.attention import SHARED, use_packed_attention
from omni_kit.toys.weights import shuffled_ramp

_BATCH, _TOKENS, _HEADS, _WIDTH = 2, 6, 4, 8
_CHOICE = "attn_implementation"
_NEAR = 1e-3  # flash attention computes weights in the dtype of values
Kernel = Callable[..., torch.Tensor]


def attention_faults(model: nn.Module) -> Iterator[str]:
    """Yield what a kernel of a model's processors computes differently, and when.

    Only kernels that a wrapper uses instead of diffusers' dispatch are called: on small tensors, without a mask
    and with one, with diffusers' scale and with another; by torch's attention and, where they choose an implementation
    by name, by VeOmni's flash attention. To refuse in words is no fault.
    """
    for kernel in _kernels(model):
        yield from _faults(kernel, "")
        if hasattr(kernel, _CHOICE):
            with _flash(model, kernel):
                yield from _faults(kernel, " by flash attention")


def select_attention(model: nn.Module, name: str) -> bool:
    """Choose the attention of a model that is built already; return whether its kernels let themselves be chosen.

    Args:
        name: in transformers' registry of attention functions.
    """
    kernels = _kernels(model)
    for kernel in kernels:
        if not hasattr(kernel, _CHOICE):
            return False
        setattr(kernel, _CHOICE, name)
        if (config := getattr(kernel, "config", None)) is not None:
            config._attn_implementation = name
    return bool(kernels)


def _kernels(model: nn.Module) -> list[Kernel]:
    called = (getattr(type(one).__call__, "__globals__", {}).get(DISPATCH) for one in processors_of(model))
    found = {id(one): one for one in called if one is not None and one is not dispatch_attention_fn}
    return list(found.values())


def _faults(kernel: Kernel, by: str) -> Iterator[str]:
    query, key, value = (shuffled_ramp(name, torch.Size([_BATCH, _TOKENS, _HEADS, _WIDTH])) for name in "qkv")
    mask = shuffled_ramp("mask", torch.Size([_BATCH, 1, 1, _TOKENS])) > 0
    mask[..., 0] = True
    asked: dict[str, dict[str, Any]] = {
        "without a mask": {}, "with a mask": {"attn_mask": mask}, "with a scale of 0.5": {"scale": 0.5},
    }  # fmt: skip
    for how, given in asked.items():
        try:
            answer = kernel(query, key, value, **given)
        except (ValueError, NotImplementedError):
            continue
        expected = dispatch_attention_fn(query, key, value, **given)
        if answer.shape != expected.shape or not torch.allclose(answer, expected, rtol=_NEAR, atol=_NEAR):
            yield f"attention {how}{by} is not diffusers' own"


@contextmanager
def _flash(model: nn.Module, kernel: Any) -> Iterator[None]:
    """VeOmni's flash attention, with torch as its kernel, is what a kernel chooses."""
    before = getattr(kernel, _CHOICE)
    use_packed_attention(model)
    setattr(kernel, _CHOICE, SHARED)
    if (config := getattr(kernel, "config", None)) is not None:
        config._attn_implementation, config._pre_quantization_dtype = SHARED, torch.float32
    try:
        yield
    finally:
        setattr(kernel, _CHOICE, before)
