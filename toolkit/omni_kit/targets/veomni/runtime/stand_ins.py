"""Torch kernels for the operations that VeOmni has only on accelerators, registered as VeOmni lets third parties.

Without them, models with gated delta-rule layers cannot run on a CPU at all. Each says when it was used, so that a
report can name what it did not test.
"""

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import torch
from torch import nn

NAME = "omni_kit_torch"
_OPERATIONS = ("causal_conv1d", "chunk_gated_delta_rule")
_used: set[str] = set()


def register_stand_ins() -> dict[str, str]:
    """Register the kernels once; return the fields of OpsImplementationConfig that select them."""
    from veomni.ops.kernel_registry import KERNEL_REGISTRY, HardwareRequirement, KernelSpec

    kernels: dict[str, Callable[..., Any]] = {
        "causal_conv1d": causal_conv1d,
        "chunk_gated_delta_rule": chunk_gated_delta_rule,
    }
    for operation, kernel in kernels.items():
        if NAME not in KERNEL_REGISTRY.list_available(operation, "standard"):
            anywhere = HardwareRequirement(device_type="any")
            spec = KernelSpec(NAME, operation, "standard", lambda kernel=kernel: kernel, anywhere)
            KERNEL_REGISTRY.register(spec)
    return {f"{operation}_implementation": NAME for operation in kernels}


def stand_ins_used() -> list[str]:
    """Return the stand-ins that ran since the last call, one line each."""
    lines = [
        f"torch stood in for VeOmni's {operation} kernel, which needs an accelerator" for operation in sorted(_used)
    ]
    _used.clear()
    return lines


def causal_conv1d(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    activation: str | None = None,
    cu_seqlens: torch.Tensor | None = None,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """Depthwise convolution that looks back only, within each sequence.

    Args:
        x: [1, tokens, channels].
        weight: [channels, kernel].
        cu_seqlens: where the sequences begin and end, [sequences + 1].
    """
    _used.add("causal_conv1d")
    kernel = weight.shape[-1]
    parts = []
    for part in _sequences(x, cu_seqlens):
        both_ways = nn.functional.conv1d(
            part.transpose(1, 2), weight.unsqueeze(1), bias, padding=kernel - 1, groups=weight.shape[0]
        )
        parts.append(both_ways[..., : part.shape[1]].transpose(1, 2))
    mixed = torch.cat(parts, dim=1)
    return (nn.functional.silu(mixed) if activation in ("silu", "swish") else mixed), None


def chunk_gated_delta_rule(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor,
    cu_seqlens: torch.Tensor | None = None,
    **options: Any,
) -> tuple[torch.Tensor, None]:
    """Return upstream's own torch version, sequence by sequence; all tensors are [1, tokens, heads, ...]."""
    from transformers.models.qwen3_5.modeling_qwen3_5 import torch_chunk_gated_delta_rule

    _used.add("chunk_gated_delta_rule")
    split = [list(_sequences(tensor, cu_seqlens)) for tensor in (query, key, value, g, beta)]
    parts = [
        torch_chunk_gated_delta_rule(q, k, v, g=decay, beta=rate, **options)[0]
        for q, k, v, decay, rate in zip(*split, strict=True)
    ]
    return torch.cat(parts, dim=1), None


def _sequences(packed: torch.Tensor, cu_seqlens: torch.Tensor | None) -> Iterator[torch.Tensor]:
    bounds = [0, packed.shape[1]] if cu_seqlens is None else cu_seqlens.tolist()
    yield from (packed[:, start:end] for start, end in pairwise(bounds))
