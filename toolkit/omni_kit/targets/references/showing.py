"""Samplers that save or show pictures on the way: they write no file and need no package for pictures."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch

from omni_kit.targets.references.authors import Missing
from omni_kit.targets.references.standing_in import StandIn
from omni_kit.targets.replacing import replaced

_SHOWN = ("torchvision", "PIL", "matplotlib", "imageio", "cv2", "wandb", "IPython")
"""Packages that make pictures of latents, and change none."""
_WRITES: tuple[tuple[Any, tuple[str, ...]], ...] = (
    (os, ("mkdir", "makedirs")),
    (torch, ("save",)),
    (np, ("save", "savez", "savetxt")),
)


@contextmanager
def showing_nothing() -> Iterator[None]:
    """Let calls of packages for pictures that are missing return stand-ins, and functions that write files do
    nothing.
    """
    called = Missing.__call__

    def shown(missing: Missing, *args: Any, **kwargs: Any) -> Any:
        name = str(vars(missing)["_name"])
        return StandIn(name) if name.partition(".")[0] in _SHOWN else called(missing, *args, **kwargs)

    with ExitStack() as stack:
        stack.enter_context(replaced(Missing, "__call__", shown))
        for owner, names in _WRITES:
            for name in names:
                stack.enter_context(replaced(owner, name, _nothing))
        yield


def _nothing(*_: Any, **__: Any) -> None:
    pass
