"""What an expression stands for, done with numpy."""

from collections.abc import Mapping

import numpy as np

from omni_kit.upstream.transformers.recipes.expression import Expression


def evaluate(x: Expression, sources: Mapping[str, np.ndarray]) -> np.ndarray:
    """What an expression stands for, done the slow and plain way; -1 where nothing fills it."""
    result = np.full(x.shape, -1)
    for piece in x.pieces:
        flat = sources[piece.key].reshape(-1)
        indices = np.full((), piece.offset)
        for axis in piece.axes:
            indices = indices[..., None] + axis.stride * np.arange(axis.size)
        place = tuple(slice(a.start, a.start + a.step * (a.size - 1) + 1, a.step) for a in piece.axes)
        assert (result[place] == -1).all(), "pieces overlap"
        result[place] = flat[indices]
    return result
