"""Limits on the size of a toy."""

import inspect
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from torch import nn
from torch.nn.modules.module import register_module_parameter_registration_hook

from omni_kit.errors import BadInput

MOST = 100_000_000
"""Parameters of a toy: both sides hold them, with gradients, in float32."""

_SMALL = 4  # numbers up to this cannot be reduced
_NAMED = 8  # of the sizes that a message names


def _makers() -> list[tuple[nn.Module, FrameType]]:
    """Return the modules whose constructors run now, from within."""
    makers: list[tuple[nn.Module, FrameType]] = []
    frame = sys._getframe()
    while (caller := frame.f_back) is not None:
        frame = caller
        if frame.f_code.co_name == "__init__" and isinstance(one := frame.f_locals.get("self"), nn.Module):
            makers.append((one, frame))
    return makers


def _sizes() -> str:
    """Return the numbers that the constructors of the model take, those of its bases too, largest first."""
    makers = _makers()
    if not makers:
        return ""
    model = makers[-1][0]
    now = {name: value for one, frame in makers if one is model for name, value in frame.f_locals.items()}
    found: dict[str, int] = {}
    for cls in type(model).__mro__:
        if cls is nn.Module:
            break
        init = cls.__dict__.get("__init__")
        for name, one in inspect.signature(init).parameters.items() if init is not None else ():
            value = now.get(name, vars(model).get(name, one.default))
            if isinstance(value, int) and value > _SMALL:
                found.setdefault(name, value)
    ordered = sorted(found, key=lambda name: -found[name])[:_NAMED]
    return ", ".join(f"{name}={found[name]}" for name in ordered)


def _part() -> str:
    """Return the part of a model that is made now, and where its constructor makes it."""
    makers = _makers()
    inner = [one for one in makers if makers and one[0] is not makers[-1][0]]
    if not inner:
        return ""
    root = next(frame for one, frame in makers if one is makers[-1][0])  # of several constructors that which calls
    return f"{type(inner[-1][0]).__name__} ({Path(root.f_code.co_filename).name}:{root.f_lineno})"


class _Count:
    """The parameters that the model that is made has so far."""

    total = 0


_counts: list[_Count] = []


def another_model() -> None:
    """Begin to count again: the next model replaces one that was only tried."""
    for count in _counts:
        count.total = 0


@contextmanager
def of_toy_size(source: str) -> Iterator[None]:
    """Refuse a model that is made in here once it has more parameters than a toy; none is initialised by then.

    A saved model is opened as it is, whatever its size.

    Args:
        source: what the toy is made from.

    Raises:
        BadInput: there are more.
    """
    counted = _Count()

    def count(_: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        counted.total += parameter.numel() if parameter is not None else 0
        if counted.total > MOST:
            message = f"{source} is too large for a toy: it has more than {MOST // 1_000_000} million parameters"
            hint = "write smaller sizes, fewer layers and fewer experts into it"
            hint += f": {sizes}" if (sizes := _sizes()) else ""
            raise BadInput(message + (f" at {part}" if (part := _part()) else ""), hint)

    if Path(source).is_dir():
        yield
        return
    watching = register_module_parameter_registration_hook(count)
    _counts.append(counted)
    try:
        yield
    finally:
        watching.remove()
        _counts.remove(counted)
