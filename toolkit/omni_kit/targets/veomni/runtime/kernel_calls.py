"""Catches the calls that the kernels of a VeOmni model get, each with the reference that it is judged by."""

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from types import ModuleType
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from omni_kit.targets.sides import KernelCall
from omni_kit.targets.veomni.runtime.attention import packed_attention
from omni_kit.targets.veomni.runtime.kernels import ATTENTION_SETTING, EXPERTS, setting_of, slots_of
from omni_kit.targets.veomni.runtime.references import REFERENCES, fused_experts
from omni_kit.targets.veomni.runtime.slots import call_told

_ONE_SAMPLE = 2  # bounds


class _Caught:
    """Calls a kernel, and keeps the first call of each form.

    Args:
        judged: the kernel as it is compared with the reference, where that is not as it is called.
    """

    def __init__(
        self,
        kernel: Callable[..., Any],
        reference: Callable[..., Any] | None,
        judged: Callable[..., Any] | None = None,
    ) -> None:
        self.__name__ = getattr(kernel, "__name__", "kernel")
        self._kernel, self._reference, self._judged = kernel, reference, judged or kernel
        self._calls: dict[str, KernelCall | str] = {}
        self._times: Counter[str] = Counter()

    @property
    def calls(self) -> list[KernelCall | str]:
        """The first call of each form, and how many there were."""
        return [
            one if isinstance(one, str) else replace(one, times=self._times[told]) for told, one in self._calls.items()
        ]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        told = call_told(args, kwargs)
        self._times[told] += 1
        if told not in self._calls and self._reference is None:
            self._calls[told] = "no independent reference is known for it"
        elif told not in self._calls and self._reference is not None:
            self._calls[told] = KernelCall(told, self._judged, self._reference, kept(args), kept(kwargs))
        return self._kernel(*args, **kwargs)


def kept(value: Any) -> Any:
    """Return the value with its tensors as they are now, since a kernel may write over them; and what requires a
    gradient.
    """
    if isinstance(value, torch.Tensor) and not isinstance(value, nn.Parameter):
        return value.detach().clone().requires_grad_(value.requires_grad)
    if isinstance(value, (tuple, list)):
        return tuple(kept(item) for item in value)
    if isinstance(value, dict):
        return {key: kept(item) for key, item in value.items()}
    return value


def caught_calls(model: nn.Module, setting: str, run: Callable[[], Any]) -> list[KernelCall | str]:
    """The calls that the kernels of a setting get in `run`."""
    caught: list[_Caught] = []
    module = sys.modules[type(model).__module__]
    with ExitStack() as stack:
        if setting == ATTENTION_SETTING:
            _check_mask(model, run)
            caught.append(stack.enter_context(_catching_attention(model)))
        filled = [slot for slot in slots_of(module).values() if slot._kernel is not None]
        own = [slot for slot in filled if setting_of(slot.op_name) == setting]
        caught += [stack.enter_context(_catching_slot(slot)) for slot in own]
        if setting == setting_of(EXPERTS):
            caught.append(stack.enter_context(_catching_experts()))
        run()
    return [call for one in caught for call in one.calls]


@contextmanager
def _catching_slot(slot: Any) -> Iterator[_Caught]:
    kernel = slot._kernel
    slot._kernel = caught = _Caught(kernel, REFERENCES.get((slot.op_name, slot.variant)))
    try:
        yield caught
    finally:
        slot._kernel = kernel


@contextmanager
def _catching_experts() -> Iterator[_Caught]:
    """Some experts ask the slot only whether it is filled, and call what VeOmni's pointer leads to."""
    from veomni.ops.kernels import moe

    kernel = moe._fused_moe_forward
    caught = _Caught(kernel, fused_experts)
    moe._fused_moe_forward = caught if kernel is not None else None
    try:
        yield caught
    finally:
        moe._fused_moe_forward = kernel


@contextmanager
def plain_code(module: ModuleType, attention: str) -> Iterator[None]:
    """While this is entered, the slots of a module are empty, and attention of this name goes by its definition."""
    kernels = {slot: slot._kernel for slot in slots_of(module).values()}
    for slot in kernels:
        slot._kernel = None
    try:
        with _attention_by(attention, lambda *args, **kwargs: (_plain_attention(*args, **kwargs), None)):
            yield
    finally:
        for slot, kernel in kernels.items():
            slot._kernel = kernel


@contextmanager
def _catching_attention(model: nn.Module) -> Iterator[_Caught]:
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS as FUNCTIONS

    name = str(getattr(model, "config")._attn_implementation)  # noqa: B009 - a module has any attribute
    kernel = FUNCTIONS[name] if name in FUNCTIONS else sys.modules[type(model).__module__].eager_attention_forward
    caught = _Caught(kernel, _plain_attention, _alone(kernel))
    with _attention_by(name, caught):
        yield caught


@contextmanager
def _attention_by(name: str, function: Callable[..., Any]) -> Iterator[None]:
    """Register a function of attention while this is entered; then everything is as before, as graphs check it."""
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS as FUNCTIONS

    own = FUNCTIONS._local_mapping.get(name)
    FUNCTIONS[name] = function
    try:
        yield
    finally:
        if own is None:
            del FUNCTIONS[name]
        else:
            FUNCTIONS[name] = own


class _KeepsApart(Exception):
    """The mask of flex attention keeps packed samples apart."""


def _check_mask(model: nn.Module, run: Callable[[], Any]) -> None:
    """Raise if the mask of flex attention joins packed samples, before mask and kernel compile for long.

    Raises:
        ValueError: it does.
    """
    name = str(getattr(model, "config")._attn_implementation)  # noqa: B009 - a module has any attribute
    if "flex" in name:
        with torch.compiler.set_stance("force_eager"), _attention_by(name, _judge_mask), suppress(_KeepsApart):
            run()


def _judge_mask(module: Any, query: Any, key: Any, value: Any, attention_mask: Any = None, **kwargs: Any) -> Any:
    bounds, sees = kwargs.get("cu_seq_lens_q"), getattr(attention_mask, "mask_mod", None)
    if sees is not None and bounds is not None and len(bounds) > _ONE_SAMPLE:
        first, zero = bounds[1].long(), torch.zeros_like(bounds[1]).long()
        if sees(zero, zero, first, first - 1):
            raise ValueError("its mask lets tokens see the packed sample before theirs")
    raise _KeepsApart


def _alone(kernel: Callable[..., Any]) -> Callable[..., Any]:
    def attention(*args: Any, **kwargs: Any) -> Any:
        return kernel(*args, **kwargs)[0]

    return attention


def _plain_attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: Any,
    dropout: float = 0.0,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    **kwargs: Any,
) -> torch.Tensor:
    """Attention by its definition, over sequences that are packed without padding.

    Args:
        query, key, value: [batch, heads, tokens, width].
        attention_mask: whatever the kernel requires; who sees whom follows from where the sequences begin.

    Returns:
        [batch, tokens, heads, width of value].
    """
    query, key, value = (tensor.transpose(1, 2) for tensor in (query, key, value))
    causal, sinks = kwargs.get("is_causal"), kwargs.get("s_aux")

    def attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, sinks: Any) -> torch.Tensor:
        return packed_attention(
            query,
            key,
            value,
            None,
            query.shape[1],
            getattr(module, "is_causal", True) if causal is None else causal,
            softmax_scale=scaling,
            sliding_window=sliding_window,
            softcap=softcap,
            cu_seq_lens_q=kwargs.get("cu_seq_lens_q"),
            cu_seq_lens_k=kwargs.get("cu_seq_lens_k"),
            s_aux=sinks,
        )

    # One head of keys at a time, computed again for gradients: the weights of all would not fit next to a real model.
    count = key.shape[2]
    parts = [tensor.chunk(count, dim=2) for tensor in (query, key, value)]
    of_sinks = (None,) * count if sinks is None else sinks.chunk(count)
    answers = [checkpoint(attention, *part, use_reentrant=False) for part in zip(*parts, of_sinks, strict=True)]
    return torch.cat(answers, dim=2)
