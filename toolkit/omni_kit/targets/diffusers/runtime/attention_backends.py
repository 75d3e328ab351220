"""Check whether what diffusers does with attention reaches it: processors are called, and a backend that is set
computes.
"""

import sys
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from copy import copy
from functools import wraps
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

# A backend that any machine has, and that shows: torch's other kernels are switched off while it computes.
_LIBRARIES = ("diffusers", "transformers")  # which models may take whole layers from
_BACKEND, _USUAL = "_native_math", "native"


def exercised(model: Any, run: Callable[[], Any]) -> tuple[list[str], list[tuple[str, str]]]:
    """Return what was called on a model, and of what is wrong, what and why.

    Args:
        run: calls the model once.
    """
    called, wrong = ["attn_processors"], []
    processors = dict(getattr(model, "attn_processors", {}))
    if processors:
        called.append("set_attn_processor")
        if idle := _idle(model, processors, run):
            wrong.append(("attn_processors", f"{len(idle)} processors are listed and never called, {idle[0]} first"))
    called.append("set_attention_backend")
    model.set_attention_backend(_BACKEND)
    try:
        with _Watch(sys.modules[type(model).__module__].__file__ or "") as watch:
            run()
    finally:
        model.set_attention_backend(_USUAL)
    if watch.missed:
        said = f"{watch.missed} of {watch.seen} calls of attention do not use the backend that is set"
        wrong.append(("set_attention_backend", said))
    if watch.elsewhere:
        named = ", ".join(f"{count} in {package}" for package, count in sorted(watch.elsewhere.items()))
        called[-1] += f" (of {watch.seen} calls {named}, whose own attention has no backends)"
    return called, wrong


def _idle(model: Any, processors: Mapping[str, Any], run: Callable[[], Any]) -> list[str]:
    """Return the processors that a run of the model does not call, though it calls parts of their attention.

    An attention that is an argument of another one's processor is computed by that processor.
    """
    ran: set[str] = set()
    modules = dict(model.named_modules())
    handles = [
        module.register_forward_pre_hook(lambda module, given, name=name: ran.add(name))
        for name, module in modules.items()
    ]
    calls: Counter[str] = Counter()
    processor_of = {id(modules.get(name.removesuffix(".processor"))): name for name in processors}
    counted = {name: _counted(name, one, calls, processor_of) for name, one in processors.items()}
    model.set_attn_processor(counted)
    try:
        run()
    finally:
        model.set_attn_processor(dict(processors))
        for handle in handles:
            handle.remove()
    return [name for name in processors if not calls[name] and _ran_in(name.removesuffix(".processor"), ran)]


def _ran_in(attention: str, ran: Collection[str]) -> bool:
    return any(name == attention or name.startswith(f"{attention}.") for name in ran)


def _counted(name: str, processor: Any, calls: Counter[str], processor_of: Mapping[int, str]) -> Any:
    """Return a copy of a processor that counts its calls, and those of the processors whose attention it is given.

    Its signature is the same: diffusers' own attention passes a processor only the arguments that it names.

    Args:
        processor_of: `id` of an attention -> the name of its processor.
    """
    kind = type(processor)

    @wraps(kind.__call__)
    def counting(self: Any, *args: Any, **kwargs: Any) -> Any:
        calls.update({name, *(processor_of[id(one)] for one in (*args, *kwargs.values()) if id(one) in processor_of)})
        return kind.__call__(self, *args, **kwargs)

    one = copy(processor)
    one.__class__ = type(kind.__name__, (kind,), {"__call__": counting})
    return one


class _Watch(TorchFunctionMode):
    """Sees every call of torch's attention.

    Args:
        file: the model's own. Attention that a library has is not the model's to change.

    Attributes:
        seen, missed: calls, and those in the model's own file that do not use the backend.
        elsewhere: package -> calls in its own attention that do not use it.
    """

    def __init__(self, file: str) -> None:
        super().__init__()
        self.file = file
        self.seen = 0
        self.missed = 0
        self.elsewhere: Counter[str] = Counter()

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """See `TorchFunctionMode`."""
        if func is torch.nn.functional.scaled_dot_product_attention:
            self.seen += 1
            if torch.backends.cuda.flash_sdp_enabled():  # type: ignore[no-untyped-call]
                package = self._library()
                self.elsewhere.update([package] if package else [])
                self.missed += not package
        return func(*args, **(kwargs or {}))

    def _library(self) -> str:
        """Return the library whose own module calls attention now; empty if the model's file does."""
        frame = sys._getframe(1)
        while frame is not None and frame.f_code.co_filename != self.file:
            package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
            if package in _LIBRARIES and isinstance(frame.f_locals.get("self"), torch.nn.Module):
                return package
            frame = frame.f_back  # type: ignore[assignment]
        return ""
