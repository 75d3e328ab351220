"""One training step of a VeOmni integration in one process of several, by VeOmni's own runtime.

Its parallel state, its collators, its loader and its sharding do the work; only what a CPU lacks is stood in for.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import distributed, nn

from omni_kit.errors import MissingRequirement
from omni_kit.targets.sides import Mesh
from omni_kit.targets.veomni.runtime.arguments import collated, placed
from omni_kit.targets.veomni.runtime.slots import COUNTING, kernels_of
from omni_kit.toys.batches.protocol import Batch
from omni_kit.toys.tensors import Tensors

_NO_CLIPPING = 1e30
_FLEX_WIDTH = 16  # torch's flex attention on a GPU takes no narrower heads
_LEVELS = {
    "sp": tuple(Mesh(f"ulysses={size}", size, {"ulysses": size}) for size in (1, 2, 4)),
    "fsdp": (Mesh("1 process", 1, {}, parts=4), Mesh("fsdp=2", 2, {"dp": 2}, 4), Mesh("fsdp=4", 4, {"dp": 4}, 4)),
    "ep": (Mesh("1 process", 1, {}, parts=2), Mesh("ep=2", 2, {"dp": 2, "ep": 2}, 2)),
}
_LOW = "bfloat16"  # the only kind of number that VeOmni's kernels for experts take


def meshes_of(level: str, model: Any, device: str) -> tuple[Sequence[Mesh] | str, list[str]]:
    """Return the meshes of a level, starting with the one process to compare them with; or why it does not apply.

    Returns:
        With it, what was left out.

    Raises:
        MissingRequirement: VeOmni itself could run it, but not on this machine.
    """
    if level == "ep" and (why := _why_no_experts(model, device)):
        return why, []
    wanted = in_low_precision(_LEVELS[level]) if level == "ep" and device != "cpu" else _LEVELS[level]
    left_out = {mesh.name: why for mesh in wanted if (why := _why_not(mesh, model, device))}
    fit = [mesh for mesh in wanted if mesh.name not in left_out]
    if all(mesh.processes == 1 for mesh in fit):
        raise MissingRequirement(f"{level}: {'; '.join(f'{name} {why}' for name, why in left_out.items())}")
    return fit, [f"{level} leaves out {name}, which {why}" for name, why in left_out.items()]


def in_low_precision(meshes: Sequence[Mesh]) -> list[Mesh]:
    """Return all meshes but the first in low precision, next to one process in it, whose error is the measure."""
    alone, *others = meshes
    low = replace(alone, name=f"{alone.name} in {_LOW}", dtype=_LOW)
    return [alone, low, *(replace(mesh, dtype=_LOW) for mesh in others)]


def _why_not(mesh: Mesh, model: Any, device: str) -> str:
    """Return why a mesh does not fit the model or the machine; empty if it does."""
    odd = [count for count in sorted(_heads(model.config.to_dict())) if count % mesh.sizes.get("ulysses", 1)]
    if odd:
        return f"does not divide {odd[0]} heads"
    shares = device == "cuda" and "ulysses" in mesh.sizes
    if shares and (width := _width(model.config.get_text_config())) < _FLEX_WIDTH:
        return f"takes flex attention, which requires heads of {_FLEX_WIDTH} or more, not {width}"
    if device == "cuda" and mesh.processes > (found := torch.cuda.device_count()):
        return f"needs {mesh.processes} GPUs; this machine has {found}"
    return ""


def _width(config: Any) -> int:
    named = getattr(config, "head_dim", None) or getattr(config, "attention_head_dim", None)
    return int(named or config.hidden_size // config.num_attention_heads)


def _why_no_experts(model: Any, device: str) -> str:
    """Return why there is nothing to shard; empty if there is."""
    if not any(".experts." in name and tensor.dim() == 3 for name, tensor in model.named_parameters()):
        return "not applicable: the model has no stacked experts to share out"
    if not hasattr(model, "get_parallel_plan"):
        return "not applicable: the integration has no get_parallel_plan, which VeOmni shares experts out by"
    odd = next((slot for slot in _expert_slots(model) if slot.variant != "standard"), None)
    if odd and device == "cpu":
        raise MissingRequirement(f"VeOmni has kernels for experts of kind '{odd.variant}' only on accelerators")
    if device == "cuda":
        expert_kernel(model)
    return ""


def expert_kernel(model: nn.Module) -> str:
    """Return the first of VeOmni's kernels for the experts of a model that this accelerator runs, as its settings call
    it.

    Raises:
        MissingRequirement: none of them can be loaded.
    """
    for slot in _expert_slots(model):
        names, missing = kernels_of(slot)
        fit = [name for name in names if name != COUNTING]
        if not fit:
            why = "; ".join(missing) or "none is for this accelerator"
            raise MissingRequirement(f"no kernel for experts of kind '{slot.variant}' can be loaded: {why}")
        return f"fused_{fit[0]}"
    return "fused_triton"


def _heads(config: Mapping[str, Any]) -> set[int]:
    """Return the numbers of heads that Ulysses shares out. Those of keys and values it repeats where they are
    too few.
    """
    found: set[int] = set()
    for key, value in config.items():
        if isinstance(value, Mapping):
            found |= _heads(value)
        elif str(key).endswith("heads") and "key_value" not in key and isinstance(value, int):
            found.add(value)
    return found


def _expert_slots(model: nn.Module) -> list[Any]:
    from veomni.ops.dispatch import OpSlot

    values = vars(sys.modules[type(model).__module__]).values()
    return [value for value in values if isinstance(value, OpSlot) and value.op_name == "moe_experts"]


def begin(mesh: Mesh, device: str) -> None:
    """Joins the process group that the launcher described, and makes VeOmni's parallel state."""
    from veomni.distributed.parallel_state import init_parallel_state

    if device == "cuda":
        torch.cuda.set_device(distributed.get_rank())
    sizes = mesh.sizes
    init_parallel_state(
        dp_size=sizes.get("dp", 1),
        ulysses_size=sizes.get("ulysses", 1),
        extra_parallel_sizes=(sizes.get("ep", 1),),
        extra_parallel_names=("ep",),
        extra_parallel_placement_innermost=(False,),
        dp_mode="fsdp2",
    )


def without_router_loss(model: nn.Module) -> str:
    """Leave out the loss that balances experts; return what is to be said about it.

    VeOmni takes it over each process's own tokens, with the mask of all of them: with more than one process it is
    another number, or none at all.
    """
    found = ""
    for module in model.modules():
        config: Any = getattr(module, "config", None)
        if getattr(config, "output_router_logits", False):
            config.output_router_logits = False
            found = "sp leaves out the router's load-balancing loss, which VeOmni does not take over the whole sequence"
    return found


def shard(model: Any, checkpoint: Path) -> Any:
    """Return a model on the meta device, sharded and loaded as the trainers do, but in float32 and without
    recomputing.
    """
    from veomni.arguments.arguments_types import MixedPrecisionConfig
    from veomni.distributed.torch_parallelize import build_parallelize_model
    from veomni.optim import build_optimizer

    sharded = build_parallelize_model(
        model,
        weights_path=str(checkpoint),
        init_device="meta",
        mixed_precision=MixedPrecisionConfig(enable=False),
        enable_gradient_checkpointing=False,
        basic_modules=list(getattr(model, "_no_split_modules", None) or []),
        broadcast_model_weights_from_rank0=True,
    )
    build_optimizer(sharded)  # notes which parameters belong to experts, for the norm of the gradients
    return sharded.train()


def step(model: Any, parts: Batch, device: str) -> tuple[Tensors, Tensors]:
    """Forward and backward over this process's share of the parts.

    Returns:
        loss [] and gradient_norm [] of the whole batch; and every parameter's whole gradient.
    """
    from veomni.distributed.clip_grad_norm import veomni_clip_grad_norm
    from veomni.distributed.parallel_state import get_parallel_state
    from veomni.utils.loss_utils import count_loss_token, mean_global_loss, reduce_global_loss_token

    state = get_parallel_state()
    mine = parts[max(state.dp_rank, 0) :: state.dp_size]
    batches = [collated(model, part) for part in mine]
    model.zero_grad(set_to_none=True)
    total = reduce_global_loss_token(count_loss_token(batches))
    mean = torch.zeros((), device=device)
    for batch in batches:
        tokens = count_loss_token(batch)
        loss = model(**placed(batch, device), use_cache=False).loss
        (scaled,) = mean_global_loss(loss, tokens, tokens, total).values()
        torch.autograd.backward(scaled)
        mean += scaled.detach()
    distributed.all_reduce(mean)
    gradients = dict(whole_gradients(model))
    norm = veomni_clip_grad_norm(model, _NO_CLIPPING)
    return {"loss": mean / state.fsdp_size, "gradient_norm": torch.tensor(float(norm))}, gradients


def whole_gradients(model: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield every gradient put together from all processes; each process must ask for all of them in the same order."""
    from torch.distributed.tensor import DTensor

    experts = getattr(model, "_fqn2spec_info", None) or {}
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        # A process that did not use a parameter takes part with zeros, as the optimizer would see it.
        gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        whole = gradient.full_tensor() if isinstance(gradient, DTensor) else gradient
        yield name, _of_all_experts(whole, experts.get(name))


def _of_all_experts(gradient: torch.Tensor, shared: Any) -> torch.Tensor:
    """Return the gradients of the experts of all processes, where VeOmni's plan shares them out."""
    from torch.distributed.tensor import Shard
    from veomni.distributed.parallel_state import get_parallel_state

    if shared is None or not isinstance(shared.placement, Shard):
        return gradient
    group = get_parallel_state().extra_parallel_group(shared.para_name)
    parts = [torch.empty_like(gradient) for _ in range(distributed.get_world_size(group))]
    distributed.all_gather(parts, gradient.contiguous(), group=group)
    return torch.cat(parts, dim=shared.placement.dim)
