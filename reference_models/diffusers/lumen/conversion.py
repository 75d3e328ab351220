"""The weights of Lumen as diffusers has them."""

import re


def convert_lumen_transformer_checkpoint_to_diffusers(checkpoint, **kwargs):
    """Gives the authors' tensors the names of the model here; where one becomes several, its rows are shared out."""
    # A pattern of the authors' names -> the names here. What no pattern fits keeps its name.
    renamed = {
        r"(blocks\.\d+\.attn)\.qkv\.(weight|bias)": (
            r"\1.to_q.\2",
            r"\1.to_k.\2",
            r"\1.to_v.\2",
        ),
        r"(blocks\.\d+\.attn)\.proj\.(weight|bias)": (r"\1.to_out.0.\2",),
    }
    converted = {}
    for key, tensor in checkpoint.items():
        names, match = (key,), None
        for pattern, names_here in renamed.items():
            match = re.fullmatch(pattern, key)
            if match is not None:
                names = tuple(match.expand(name) for name in names_here)
                break
        parts = tensor.chunk(len(names), dim=0) if len(names) > 1 else (tensor,)
        converted.update(zip(names, parts))
    return converted
