"""Records how attention is called through transformers' registry of attention functions.

On a CPU every mask is made beforehand, and whether attention is told to be causal, or how far it may look, changes no
number; the kernels of an accelerator rely on nothing else. So what cannot be seen in the outputs is read off the calls.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
import torch._dynamo.backends.debugging  # flex attention does so at its first call, and forks inherit what is imported
from torch import nn

from omni_kit.targets.sides import AttentionCalls


@contextmanager
def attention_recorded(model: nn.Module) -> Iterator[AttentionCalls]:
    """Notes each different way in which a module of `model` calls a function of transformers' attention registry."""
    from transformers.modeling_utils import AttentionInterface

    names = {module: name for name, module in model.named_modules()}
    calls: AttentionCalls = {}
    choose = AttentionInterface.get_interface

    def chosen(registry: Any, implementation: str, default: Callable[..., Any]) -> Callable[..., Any]:
        function = choose(registry, implementation, default)

        def noted(module: nn.Module, query: Any, key: Any, value: Any, *args: Any, **kwargs: Any) -> Any:
            told, known = _told(module, query, key, kwargs), calls.setdefault(names.get(module, ""), [])
            if told not in known:
                known.append(told)
            return function(module, query, key, value, *args, **kwargs)

        return noted

    AttentionInterface.get_interface = chosen
    try:
        yield calls
    finally:
        AttentionInterface.get_interface = choose


def _told(module: nn.Module, query: torch.Tensor, key: torch.Tensor, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that decide which tokens attend to which, with the kernels' defaults filled in."""
    causal, scale = given.get("is_causal"), given.get("scaling")
    return {
        "is_causal": bool(getattr(module, "is_causal", True) if causal is None else causal),
        "scale": float(f"{query.shape[-1] ** -0.5 if scale is None else float(scale):.6g}"),
        "sliding_window": given.get("sliding_window") or None,
        "softcap": given.get("softcap") or None,
        "dropout": float(given.get("dropout") or 0.0),
        "sinks": _in_short(given.get("s_aux")),
        "heads": [query.shape[1], key.shape[1]],
    }


def _in_short(sinks: torch.Tensor | None) -> str | None:
    """Enough to tell whether two tensors are the same one, and whether a gradient can come back."""
    if sinks is None:
        return None
    return f"{float(sinks.detach().double().norm()):.5g}{'' if sinks.requires_grad else ', without gradient'}"


@contextmanager
def attention_used(model: Any, name: str) -> Iterator[None]:
    """A model attends by an implementation of the library while this is entered; by its own without a name.

    Flex attention is not compiled, which a CPU would do for longer than it runs.

    Raises:
        ValueError: the model does not support it.
    """
    if not name:
        yield
        return
    configs = {id(config): config for one in model.modules() if (config := getattr(one, "config", None)) is not None}
    before = [(config, getattr(config, "_attn_implementation", None)) for config in configs.values()]
    try:
        with _uncompiled():
            model.set_attn_implementation(name)
            yield
    finally:
        for config, implementation in before:  # a whole's comes first, and sets those of its parts
            config._attn_implementation = implementation


@contextmanager
def _uncompiled() -> Iterator[None]:
    from torch.nn.attention import flex_attention as kernel
    from transformers import masking_utils
    from transformers.integrations import flex_attention as integration

    from omni_kit.targets.references.dense_flex import create_block_mask

    def attend(query: Any, key: Any, value: Any, training: bool = False, **options: Any) -> Any:
        return kernel.flex_attention(query, key, value, **options)

    places = [
        (integration, "compile_friendly_flex_attention", attend),
        (masking_utils, "create_block_mask", create_block_mask),
        (kernel, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True),  # else even a call that is not compiled is traced
    ]  # fmt: skip
    kept = [(module, name, getattr(module, name, None)) for module, name, _ in places]
    try:
        for module, name, function in places:
            setattr(module, name, function)
        yield
    finally:
        for module, name, before in kept:
            setattr(module, name, before)
