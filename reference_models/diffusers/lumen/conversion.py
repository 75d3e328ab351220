"""The weights of Lumen as diffusers has them."""

import re


def convert_lumen_transformer_checkpoint_to_diffusers(checkpoint, **kwargs):
    """Gives the authors' tensors the names of the model here; where one becomes several, its rows are shared out."""
    # A pattern of the authors' names -> the names here. What no pattern fits keeps its name.
    renamed = {
        r"blocks\.(\d+)\.attn\.qkv\.(weight|bias)": (
            r"transformer_blocks.\1.attn.to_q.\2",
            r"transformer_blocks.\1.attn.to_k.\2",
            r"transformer_blocks.\1.attn.to_v.\2",
        ),
        r"blocks\.(\d+)\.attn\.proj\.(weight|bias)": (r"transformer_blocks.\1.attn.to_out.0.\2",),
        r"blocks\.(\d+)\.mlp\.(.+)": (r"transformer_blocks.\1.ff.\2",),
        r"blocks\.(.+)": (r"transformer_blocks.\1",),
        r"time_in\.(.+)": (r"time_embed.\1",),
        r"text_in\.(.+)": (r"context_embedder.\1",),
        r"final\.(.+)": (r"proj_out.\1",),
        r"final_norm\.(.+)": (r"norm_out.\1",),
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
