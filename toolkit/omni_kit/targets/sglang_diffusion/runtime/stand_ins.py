"""Stands in for packages that SGLang imports, that need an accelerator's torch, and that no pipeline calls.

A stand-in can be imported and has any name; calling what it gives is an error. Where the package itself is installed,
nothing stands in for it.
"""

import importlib.util
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_PACKAGES = {
    "torchvision": ("io", "models", "ops", "transforms", "transforms.functional", "transforms.v2",
                    "transforms.v2.functional", "utils"),
    "torchaudio": ("functional", "transforms"),
}  # fmt: skip


def register_stand_ins() -> list[str]:
    """Puts stand-ins where packages are missing; returns the names of these packages.

    transformers and diffusers are asked first: what they find then is what they believe from there on, and neither
    takes a stand-in for the package.
    """
    import diffusers.utils.import_utils
    import transformers.image_utils
    from transformers.utils.import_utils import is_torchvision_available

    _ = (is_torchvision_available(), diffusers.utils.import_utils, transformers.image_utils)
    missing = [name for name in _PACKAGES if name not in sys.modules and importlib.util.find_spec(name) is None]
    for name in missing:
        for inner in ("", *_PACKAGES[name]):
            dotted = f"{name}.{inner}".rstrip(".")
            sys.modules[dotted] = _StandIn(dotted)
            outer, _, last = dotted.rpartition(".")
            if outer:
                setattr(sys.modules[outer], last, sys.modules[dotted])
    return missing


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
