"""Quantised tensors of a checkpoint: packed weights, and the scales stored with them."""

# A packed weight's ending -> that of the weight that it stands for.
_PACKED = {".qweight": ".weight", ".weight_packed": ".weight", "_blocks": ""}
_ENDINGS = tuple(_PACKED)
_BESIDE = (
    "_scale_inv", "_scale", "_scales", "_blocks", "_scale_2", "_global_scale", "_zero_point", ".scales", ".qzeros",
    ".g_idx", ".weight_g_idx", ".weight_shape", ".absmax", ".quant_map", ".nested_absmax", ".nested_quant_map", ".SCB",
    ".weight_format", "_amax",
)  # fmt: skip
_STATE = ".quant_state."
# Elements of these dtypes hold several values, or a part of one.
_PACKING = frozenset({"U8", "U16", "U32", "I16", "I32", "F4", "F6_E2M3", "F6_E3M2"})


def beside(name: str) -> bool:
    """Return whether a tensor of this name rides next to a quantised weight, or holds one in packed blocks."""
    return name.endswith(_BESIDE) or _STATE in name


def unpacked(name: str) -> str:
    """Return the name of the weight that a packed tensor stands for; any other name as it is."""
    if not name.endswith(_ENDINGS):
        return name
    ending = next(ending for ending in _PACKED if name.endswith(ending))
    return name.removesuffix(ending) + _PACKED[ending]


def packs(name: str, dtype: str | None) -> bool:
    """Return whether a tensor holds a weight in packed form: its shape is not the weight's, its rows are not rows."""
    return name.endswith(_ENDINGS) or (dtype in _PACKING and not beside(name))
