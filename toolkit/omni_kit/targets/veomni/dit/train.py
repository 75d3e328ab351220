"""One training step of a diffusion transformer in one process of several, as VeOmni's DiTTrainer takes it."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import distributed

from omni_kit.targets.sides import Mesh
from omni_kit.targets.veomni.runtime.train import whole_gradients
from omni_kit.toys.batches.protocol import Batch
from omni_kit.toys.tensors import Tensors

_NO_CLIPPING = 1e30


def processors_of(model: Any) -> list[Any]:
    """Return every attention processor of a model: not all classes of diffusers have `attn_processors`."""
    found = (getattr(part, "processor", None) for part in model.modules())
    return [one for one in found if one is not None]


def shares_sequences(model: Any) -> bool:
    """Return whether a wrapper shares sequences: by a plan of its own, or by processors that VeOmni's attention
    serves.
    """
    planned = getattr(model, "_share", None) is not None or bool(getattr(type(model), "_cp_plan", None))
    own = any(getattr(one, "_parallel_config", None) is not None for one in processors_of(model))
    return planned or own or any(hasattr(one, "attn_implementation") for one in processors_of(model))


def shares_by_flash(model: Any, mesh: Mesh) -> bool:
    """Return whether sequences are exchanged by VeOmni's flash attention, and not by the wrapper itself.

    diffusers' processors are given a `_parallel_config` where they share sequences themselves.
    """
    own = any(getattr(one, "_parallel_config", None) is not None for one in processors_of(model))
    return "ulysses" in mesh.sizes and bool(getattr(model, "_supports_flash_attn", False)) and not own


def step(
    model: Any, parts: Batch, device: str, feed: Callable[[Sequence[Tensors]], dict[str, Any]]
) -> tuple[Tensors, Tensors]:
    """Forward and backward over this process's share of the parts, each a micro-batch.

    Args:
        feed: makes the arguments of forward of some samples.

    Returns:
        loss [] and gradient_norm [] of the whole batch; and every parameter's whole gradient.
    """
    from veomni.distributed.clip_grad_norm import veomni_clip_grad_norm
    from veomni.distributed.parallel_state import get_parallel_state

    state = get_parallel_state()
    mine = parts[max(state.dp_rank, 0) :: state.dp_size]
    model.zero_grad(set_to_none=True)
    mean = torch.zeros((), device=device)
    for part in mine:
        losses = model(**feed([_placed(sample, model.dtype, device) for sample in part])).loss
        loss = torch.stack(list(losses.values())).sum() / len(mine)
        torch.autograd.backward(loss)
        mean += loss.detach()
    distributed.all_reduce(mean)
    gradients = dict(whole_gradients(model))
    norm = veomni_clip_grad_norm(model, _NO_CLIPPING)
    return {"loss": mean / distributed.get_world_size(), "gradient_norm": torch.tensor(float(norm))}, gradients


def _placed(sample: Tensors, dtype: torch.dtype, device: str) -> Tensors:
    return {name: t.to(device, dtype if t.is_floating_point() else None) for name, t in sample.items()}
