"""How rows of a data set become prompts and media: importing this registers the preprocessor "wan".

A row has a `prompt`, and an `image` (bytes or a path) or `frames`, a list of such images.
"""

from pathlib import Path

from veomni.data.multimodal.preprocess import PREPROCESSOR_REGISTRY


@PREPROCESSOR_REGISTRY.register("wan")
def preprocess(row, **kwargs):
    """Return the prompt, no outputs, and the images and videos of a row."""
    if row.get("frames"):
        return row["prompt"], {}, [], [[_bytes(one) for one in row["frames"]]]
    return row["prompt"], {}, [_bytes(row["image"])], []


def _bytes(image) -> bytes:
    return image if isinstance(image, bytes) else Path(image).read_bytes()
