"""Public names that have changed: the old one works for one more version."""

import sys
import warnings
from collections.abc import Callable, Mapping
from typing import Any


def old_names(module: str, new: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the `__getattr__` of a module: an old name gives the new object, with a DeprecationWarning.

    Args:
        module: `__name__` of the module.
        new: old name -> name in the same module.
    """

    def getattr_of_module(name: str) -> Any:
        if name not in new:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        warnings.warn(f"{module}.{name} is now {new[name]}", DeprecationWarning, stacklevel=2)
        return getattr(sys.modules[module], new[name])

    return getattr_of_module
