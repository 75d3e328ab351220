"""Running code that expects a GPU on a machine, or in a process, without one."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.attention
import torch.utils.cpp_extension
from torch.overrides import TorchFunctionMode

from omni_kit.targets.references import dense_flex
from omni_kit.targets.replacing import replaced

_CUDA = re.compile(r"^cuda(:\d+)?$")
# What authors ask a GPU at import or in a constructor, and what they get: one of the A100's kind.
_REPLIES: Mapping[str, Any] = {
    "current_device": 0,
    "get_device_capability": (8, 0),
    "get_device_name": "cpu",
    "get_device_properties": SimpleNamespace(
        name="cpu", major=8, minor=0, total_memory=2**36, multi_processor_count=108
    ),
    "synchronize": None,
    "empty_cache": None,
    "ipc_collect": None,
    "reset_peak_memory_stats": None,
    "reset_max_memory_allocated": None,
    "set_device": None,
}


class OnCpu(TorchFunctionMode):
    """Makes on the CPU what is to be made on, or moved to, a GPU."""

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """See `TorchFunctionMode`."""
        if func is torch.Tensor.cuda:
            return args[0]
        placed = {name: _here(value) if name == "device" else value for name, value in (kwargs or {}).items()}
        moved = [args[0], *map(_here, args[1:])] if func is torch.Tensor.to else args
        return func(*moved, **placed)


def _here(value: Any) -> Any:
    named = isinstance(value, str) and _CUDA.match(value)
    return torch.device("cpu") if named or (isinstance(value, torch.device) and value.type == "cuda") else value


_staying: list[ExitStack] = []


def stay_on_cpu() -> None:
    """From now on run everything of this process on the CPU, and uncompiled; once is enough."""
    if _staying or torch.cuda.is_available():
        return
    _staying.append(ExitStack())
    _staying[0].enter_context(OnCpu())
    replies = {name: _replying(reply) for name, reply in _REPLIES.items()}
    for module, own in (
        (torch.cuda, replies),
        (torch.cuda.nvtx, dict.fromkeys(("range_push", "range_pop", "mark"), _replying(None))),
        (torch, {"compile": _uncompiled}),
        (torch.backends.cuda, {"sdp_kernel": _any_kernel}),
        (torch.nn.attention, {"sdpa_kernel": _any_kernel}),
        (torch.nn.attention.flex_attention, dense_flex.FUNCTIONS),
        (torch.utils.cpp_extension, dict.fromkeys(("load", "load_inline"), _Extension)),
    ):
        for name, value in own.items():
            _staying[0].enter_context(replaced(module, name, value))


def leave_cpu() -> None:
    """End what `stay_on_cpu` began: torch is as before."""
    while _staying:
        _staying.pop().close()


def _replying(reply: Any) -> Callable[..., Any]:
    return lambda *args, **kwargs: reply


class _Extension:
    """An extension in C++ or CUDA that is not compiled: it can be imported, and not called."""

    def __init__(self, name: str = "", *args: Any, **kwargs: Any) -> None:
        self.name = name

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """Return a function of the extension."""

        def compiled(*args: Any, **kwargs: Any) -> Any:
            raise NotImplementedError(f"{self.name}.{name} is compiled for a GPU")

        return compiled


@contextmanager  # with which torch's own are made, too: its compiler asks for what they wrap
def _any_kernel(*args: Any, **kwargs: Any) -> Iterator[None]:
    """Allow every kernel of attention: those that authors choose are on a GPU alone."""
    yield


def _uncompiled(model: Any = None, **kwargs: Any) -> Any:
    """Return what `torch.compile` is given, also where it is a decorator with options."""
    return model if model is not None else lambda one: one
