"""What VeOmni's own saver does to tensors that upstream keeps in float32."""

from typing import Any

import torch

_SHOWN = 2


def cast_while_saved(model: Any) -> str:
    """The tensors that upstream keeps in float32 and VeOmni's saver writes in fewer bits; empty where there are none.

    Args:
        model: in float32.
    """
    from veomni.utils.save_safetensor_utils import get_model_save_state

    words = [
        word for name in ("_keep_in_fp32_modules", "_keep_in_fp32_modules_strict") for word in _listed(model, name)
    ]
    if not words:
        return ""
    saved = get_model_save_state(model, None)
    kept = [name for name, tensor in saved.items() if tensor.is_floating_point() and any(w in name for w in words)]
    lost = sorted(name for name in kept if saved[name].dtype != torch.float32)
    if not lost:
        return ""
    more = f" and {len(lost) - _SHOWN} more" if lost[_SHOWN:] else ""
    dtype = str(saved[lost[0]].dtype).removeprefix("torch.")
    return f"VeOmni's own saver writes {', '.join(lost[:_SHOWN])}{more} in {dtype}; upstream keeps them in float32"


def _listed(model: Any, name: str) -> list[str]:
    return [word for word in getattr(model, name, None) or () if isinstance(word, str)]
