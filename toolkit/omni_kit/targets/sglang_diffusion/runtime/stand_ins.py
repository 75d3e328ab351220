"""Stand-ins for what SGLang imports and a machine without an accelerator lacks, and that no pipeline calls.

A stand-in can be imported and has any name; calling what it gives is an error. Where the package itself is installed,
nothing stands in for it.
"""

import importlib.util
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

_PACKAGES = {"torchaudio": ("functional", "transforms")}
# What torchvision refers to by name when it is imported, compiled or not.
_OPERATORS = tuple(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor" for name in ("nms", "qnms"))
_declared: list[Any] = []  # torch forgets operators with the library that declared them


def register_stand_ins() -> list[str]:
    """Put stand-ins where packages are missing; return the names of these packages."""
    missing = [name for name in _PACKAGES if name not in sys.modules and importlib.util.find_spec(name) is None]
    for name in missing:
        for inner in ("", *_PACKAGES[name]):
            dotted = f"{name}.{inner}".rstrip(".")
            sys.modules[dotted] = _StandIn(dotted)
            outer, _, last = dotted.rpartition(".")
            if outer:
                setattr(sys.modules[outer], last, sys.modules[dotted])
    return missing


def declare_operators(package: Path) -> bool:
    """Declare the operators of torchvision if its compiled ones need another build of torch; return whether they do.

    Its published wheels are compiled for CUDA. The transforms of pictures are Python, and need none of them.

    Args:
        package: the directory of torchvision.
    """
    import torch

    try:
        for library in package.glob("_C*.so"):
            torch.ops.load_library(library)  # type: ignore[no-untyped-call]
    except OSError:
        _declared.append(torch.library.Library("torchvision", "FRAGMENT"))  # type: ignore[no-untyped-call]
        for schema in _OPERATORS:
            _declared[-1].define(schema)
        return True
    return False


class _StandIn(ModuleType):
    """A module that has every name."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__spec__ = ModuleSpec(name, None)
        self.__path__: list[str] = []
        self.__version__ = "0"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {"__init__": _called, "__module__": self.__name__})


def _called(self: object, *args: object, **kwargs: object) -> None:
    what = f"{type(self).__module__}.{type(self).__name__}"
    raise RuntimeError(f"{what} is a stub for a package that is not installed, and cannot be called")
