"""Effects of VeOmni's own loader and savers on a model: that of exports, and that of distributed checkpoints."""

import copy
from pathlib import Path
from typing import Any

import torch
from torch import nn

from omni_kit.errors import in_short

_SHOWN = 2


def cast_while_saved(model: Any) -> str:
    """Return the tensors that upstream keeps in float32 and VeOmni's saver writes in fewer bits; empty if there are
    none.

    Args:
        model: in float32.
    """
    from veomni.utils.save_safetensor_utils import get_model_save_state

    words = _kept_in_float32(model)
    if not words:
        return ""
    saved = get_model_save_state(model, None)
    kept = [name for name, tensor in saved.items() if tensor.is_floating_point() and any(w in name for w in words)]
    lost = sorted(name for name in kept if saved[name].dtype != torch.float32)
    if not lost:
        return ""
    more = f" and {len(lost) - _SHOWN} more" if lost[_SHOWN:] else ""
    dtype = str(saved[lost[0]].dtype).removeprefix("torch.")
    own = f"VeOmni's own saver writes {', '.join(lost[:_SHOWN])}{more} in {dtype}; upstream keeps them in float32"
    return f"{own}, and so does the export that `omni-kit parity --emit-export FILE` writes"


def cast_stored_buffers(model: nn.Module, dtype: torch.dtype) -> str:
    """Cast a diffusers model's stored buffers as diffusers' loader does; VeOmni's keeps them in float32.

    Returns:
        what was cast, in words; empty for nothing.
    """
    if dtype == torch.float32 or not any(kind.__module__.startswith("diffusers.") for kind in type(model).__mro__):
        return ""
    words, stored = _kept_in_float32(model), model.state_dict()
    cast = {
        name: buffer
        for name, buffer in model.named_buffers()
        if name in stored and buffer.dtype == torch.float32 and not any(word in name for word in words)
    }
    for buffer in cast.values():
        buffer.data = buffer.data.to(dtype)
    if not cast:
        return ""
    return (
        f"VeOmni's loader keeps {next(iter(cast))} in float32; it was compared in the dtype to which diffusers casts it"
    )


def changed_in_checkpoint(model: nn.Module, folder: Path) -> str:
    """Return which values VeOmni's distributed checkpoint changes; empty if none.

    Parameters are in bfloat16, and what upstream keeps in float32, and every buffer, in float32.

    Args:
        model: in float32; it is not changed.
        folder: where the checkpoint is written.
    """
    from torch.distributed import checkpoint
    from veomni.checkpoint.dcp_checkpointer import ModelState

    saved, words = copy.deepcopy(model), _kept_in_float32(model)
    for name, parameter in saved.named_parameters():
        if parameter.is_floating_point() and not any(word in name for word in words):
            parameter.data = parameter.data.bfloat16()
    before = {name: tensor.clone() for name, tensor in saved.state_dict().items()}
    try:
        checkpoint.save({"model": ModelState(saved)}, checkpoint_id=str(folder))
        with torch.no_grad():
            for tensor in saved.state_dict().values():
                tensor.zero_()
        checkpoint.load({"model": ModelState(saved)}, checkpoint_id=str(folder))
    except Exception as error:  # the integration's own hooks, or what they make VeOmni do
        return f"VeOmni's distributed checkpoint ends in {in_short(error)}"
    after = saved.state_dict()
    lost = [name for name, tensor in before.items() if name not in after or not _same(tensor, after[name])]
    if not lost:
        return ""
    more = f" and {len(lost) - _SHOWN} more" if lost[_SHOWN:] else ""
    return (
        f"VeOmni's distributed checkpoint gives back {', '.join(lost[:_SHOWN])}{more} with other values than were saved"
    )


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.dtype == other.dtype and torch.equal(one, other)


def _kept_in_float32(model: Any) -> list[str]:
    names = ("_keep_in_fp32_modules", "_keep_in_fp32_modules_strict")
    return [word for name in names for word in _listed(model, name)]


def _listed(model: Any, name: str) -> list[str]:
    return [word for word in getattr(model, name, None) or () if isinstance(word, str)]
