"""Limits on the size of a toy."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from torch import nn
from torch.nn.modules.module import register_module_parameter_registration_hook

from omni_kit.errors import BadInput

MOST = 100_000_000
"""Parameters of a toy: both sides hold them, with gradients, in float32."""


@contextmanager
def of_toy_size(source: str) -> Iterator[None]:
    """Refuse a model that is made in here once it has more parameters than a toy; none is initialised by then.

    A saved model is opened as it is, whatever its size.

    Args:
        source: what the toy is made from.

    Raises:
        BadInput: there are more.
    """
    total = 0

    def count(_: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        nonlocal total
        total += parameter.numel() if parameter is not None else 0
        if total > MOST:
            message = f"{source} is too large for a toy: it has more than {MOST // 1_000_000} million parameters"
            raise BadInput(message, "write smaller sizes, fewer layers and fewer experts into it")

    if Path(source).is_dir():
        yield
        return
    watching = register_module_parameter_registration_hook(count)
    try:
        yield
    finally:
        watching.remove()
