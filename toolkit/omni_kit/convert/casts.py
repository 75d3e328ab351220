"""Casting floating tensors with numpy alone; bfloat16, which numpy does not have, by its bits."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

Bits = npt.NDArray[Any]

# what `--dtype` calls them -> what safetensors calls them
CASTS: Mapping[str, str] = {"bfloat16": "BF16", "float16": "F16", "float32": "F32"}
_NATIVE: Mapping[str, type[np.floating[Any]]] = {"F16": np.float16, "F32": np.float32, "F64": np.float64}
_FLOATING = {*_NATIVE, "BF16"}
# scales and routing buffers decide which expert a token goes to, or what a weight means: they keep their precision
_KEPT = (
    "_scale_inv", "_scale", "_scales", "e_score_correction_bias", "expert_bias", "router_bias", "balancing_biases",
    "routing_bias",
)  # fmt: skip


def casts(name: str, dtype: str, buffer: bool) -> bool:
    """Return whether `--dtype` touches a tensor: floating, of 16 bits or more, no scale, no buffer, no routing bias."""
    return dtype in _FLOATING and not buffer and not name.endswith(_KEPT)


def cast(bits: Bits, source: str, target: str) -> Bits:
    """Casts elements, rounding to the nearest and to even between two.

    Args:
        bits: the elements as unsigned integers of the source's size.
        source: their dtype, as safetensors names it.
        target: the dtype to cast to.

    Returns:
        The elements as unsigned integers of the target's size, contiguous.
    """
    if source == target:
        return bits
    with np.errstate(over="ignore", invalid="ignore"):
        return _narrow(_wide(bits, source), target)


def _wide(bits: Bits, source: str) -> Bits:
    if source == "BF16":
        return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return np.ascontiguousarray(bits).view(_NATIVE[source])


def _narrow(values: Bits, target: str) -> Bits:
    if target != "BF16":
        narrowed = values.astype(_NATIVE[target])
        return narrowed.view(np.dtype(f"u{narrowed.itemsize}"))
    bits = values.astype(np.float32).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    quiet = (bits >> np.uint32(16)) | np.uint32(0x40)  # adding could carry a NaN over to infinity
    return np.where(np.isnan(values), quiet, rounded).astype(np.uint16)
