"""VeOmni's Triton kernels for grouped experts in plain torch, under the names of the two modules that define them.

Only the kernels are replaced. What VeOmni does with them (sending tokens to the process of their expert and back, the
backward pass that it writes by hand) is its own code, which cannot even be imported without Triton.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from types import ModuleType
from typing import Any, cast

import torch
from torch import distributed, nn

NAME = "omni_kit_grouped"
_gather = distributed.all_gather_into_tensor
_PACKAGE = "veomni.ops.kernels.moe._kernels.kernel"


def select_grouped_experts() -> dict[str, str]:
    """Register VeOmni's grouped experts as a kernel for any device; return the field that selects it.

    Has to run before VeOmni imports its own kernels.
    """
    _replace_kernels()
    from veomni.ops.kernel_registry import KERNEL_REGISTRY, HardwareRequirement, KernelSpec
    from veomni.ops.kernels import moe
    from veomni.ops.kernels.moe.group_gemm import group_gemm_fused_moe_forward

    adapted = moe._make_moe_experts_adapter(group_gemm_fused_moe_forward)
    anywhere = HardwareRequirement(device_type="any")
    if NAME not in KERNEL_REGISTRY.list_available("moe_experts", "standard"):
        KERNEL_REGISTRY.register(KernelSpec(NAME, "moe_experts", "standard", lambda: adapted, anywhere))
    # VeOmni knows the names of its own kernels only; third parties replace this function, as it says.
    moe.apply_veomni_fused_moe_patch = lambda fused_moe_kernel: None
    moe._fused_moe_forward = group_gemm_fused_moe_forward
    return {"moe_implementation": f"fused_{NAME}"}


def use_grouped_experts(model: nn.Module) -> list[str]:
    """Lifts what VeOmni checks or sends in a form that only GPUs know; returns what is to be said about it."""
    modeling = sys.modules[type(model).__module__]
    if hasattr(modeling, "fused_moe_forward"):
        modeling.fused_moe_forward = _in_any_dtype  # type: ignore[attr-defined]
    distributed.all_gather_into_tensor = _gather_flat
    return [
        "torch stood in for VeOmni's grouped Triton kernels of the experts, which need an accelerator",
        "experts ran in float32, which VeOmni's kernels refuse; expert counts were gathered flat, as gloo requires",
    ]


def _in_any_dtype(*args: Any, **kwargs: Any) -> torch.Tensor:
    """Return VeOmni's `fused_moe_forward` without its check for 16 bits."""
    from veomni.ops.kernels import moe

    return cast(torch.Tensor, moe._fused_moe_forward(*args, **kwargs))


def _gather_flat(output: torch.Tensor, shard: torch.Tensor, group: Any = None, async_op: bool = False) -> Any:
    """`all_gather_into_tensor` of [length] into [processes, length], which gloo knows with one axis only."""
    return _gather(output.view(-1), shard.reshape(-1), group=group, async_op=async_op)


def _replace_kernels() -> None:
    """Defines the modules of the Triton kernels, unless the real ones are there."""
    kernels: Mapping[str, Sequence[Callable[..., Any]]] = {
        "group_gemm": (group_gemm_same_nk, group_gemm_same_mn),
        "moe": (expert_histogram, moe_gather, moe_scatter),
    }
    for name, functions in kernels.items():
        module = ModuleType(f"{_PACKAGE}.{name}")
        vars(module).update({function.__name__: function for function in functions})
        sys.modules.setdefault(module.__name__, module)


def group_gemm_same_nk(
    a: torch.Tensor,
    b: torch.Tensor,
    cumsum_M: torch.Tensor,  # noqa: N803
    max_M: int,  # noqa: N803
    transpose_a: bool = False,
    transpose_b: bool = False,
    **_: Any,
) -> torch.Tensor:
    """Return rows of `a` times their expert's matrix: [rows, K] and [experts, K, N], or [experts, N, K], give [rows,
    N].
    """
    matrices = b.mT if transpose_b else b
    spans = _spans(cumsum_M, len(b))
    return torch.cat([a[start:end] @ matrix for (start, end), matrix in zip(spans, matrices, strict=True)])


def group_gemm_same_mn(
    a: torch.Tensor,
    b: torch.Tensor,
    c: torch.Tensor,
    cumsum_K: torch.Tensor,  # noqa: N803
    max_K: int,  # noqa: N803
    transpose_a: bool = False,
    transpose_b: bool = False,
) -> None:
    """Fill `c` [experts, M, N] with each expert's rows of `a` [rows, M], transposed, times those of `b` [rows, N]."""
    for index, (start, end) in enumerate(_spans(cumsum_K, len(c))):
        c[index] = a[start:end].mT @ b[start:end]


def _spans(ends: torch.Tensor, experts: int) -> list[tuple[int, int]]:
    """Return the rows of each expert, from where each one's end."""
    if len(ends) != experts:
        raise ValueError(f"tokens are grouped for {len(ends)} experts, and there are weights of {experts}")
    return list(pairwise([0, *ends.tolist()]))


def expert_histogram(indices: torch.Tensor, num_bins: int) -> torch.Tensor:
    """Return the number of tokens of each expert, int32 [experts]."""
    return torch.bincount(indices.flatten(), minlength=num_bins).to(torch.int32)


def moe_scatter(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """Return each token copied to its rows: [tokens, width] and [tokens, k] give [tokens * k, width]."""
    out = x.new_empty(index.numel(), x.shape[-1])
    out[index.flatten().long()] = x.repeat_interleave(index.shape[-1], dim=0)
    return out


def moe_gather(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """Return the rows of each token added up: [rows, width] and [tokens, k] give [tokens, width]."""
    rows: torch.Tensor = x[index.flatten().long()].reshape(*index.shape, x.shape[-1])
    return rows.sum(dim=1)
