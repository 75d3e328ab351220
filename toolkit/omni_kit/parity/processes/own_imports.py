"""A process that cannot import what is not its own: what it compares with must not come from there."""

import importlib.abc
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

_INSTALLED = "site-packages"


class Borrowed(ImportError):
    """The integration imports its authors' own code."""


class Hidden(importlib.abc.MetaPathFinder):
    """Refuses every module that is in a directory.

    Args:
        directories: whose modules are refused; what is installed there is not.
        own: the directory of the integration, or a file in it; it may are in one of the directories.
    """

    def __init__(self, directories: Sequence[Path], own: Path) -> None:
        self._directories = [one.resolve() for one in directories]
        self._own = own.resolve().parent if own.is_file() else own.resolve()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """See `MetaPathFinder`.

        Raises:
            Borrowed: the module lies there.
        """
        later = sys.meta_path[sys.meta_path.index(self) + 1 :]  # those before it have been asked, or ask this one
        for finder in later:
            found = finder.find_spec(fullname, path, target)
            if found is not None:
                places = [found.origin] if found.has_location else found.submodule_search_locations or ()
                if borrowed := next((place for place in places if place and self._hides(Path(place))), None):
                    raise Borrowed(f"the integration imports {fullname} from its authors' code: {borrowed}")
                return found
        return None

    def _hides(self, place: Path) -> bool:
        place = place.resolve()
        if place.is_relative_to(self._own) or _INSTALLED in place.parts:
            return False
        return any(place.is_relative_to(one) for one in self._directories)


def hide(directories: Sequence[Path], own: Path) -> None:
    """From now on refuse to import from these directories, and from no others."""
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, Hidden)]
    if directories:
        sys.meta_path.insert(0, Hidden(directories, own))
