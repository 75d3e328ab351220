"""Runs a config without importing what it mentions.

The file runs with its own `__import__`: the DSL is always omni-kit's, sibling configs are run the same way, the
standard library is real, and everything else is a stand-in. `sys.modules` is not touched. When the file's own code
needs a real value, it can be run with real imports instead.
"""

import builtins
import importlib
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from omni_kit.errors import BadInput
from omni_kit.patchgen import spec
from omni_kit.patchgen.importing import CONFIG_SUFFIX, DSL, OWN, Session
from omni_kit.patchgen.locate import Libraries, package_of


class Runner(Session):
    """Runs configs."""

    def __init__(self, libraries: Libraries) -> None:
        super().__init__(libraries)
        self._builtins = {**vars(builtins), "__import__": self._import}

    def fill(self, module: ModuleType, path: Path) -> None:
        """Runs the file in its module."""
        module.__dict__["__builtins__"] = self._builtins
        exec(_compiled(path, path.stat().st_mtime_ns), module.__dict__)

    def standard(self, name: str, names: tuple[str, ...]) -> Any:
        """The module itself."""
        return builtins.__import__(name, None, None, names, 0)

    def _import(
        self,
        name: str,
        importer: dict[str, Any] | None = None,
        scope: dict[str, Any] | None = None,
        fromlist: tuple[str, ...] | None = (),
        level: int = 0,
    ) -> Any:
        return self.imported(name, Path((importer or {})["__file__"]), tuple(fromlist or ()), level)


@lru_cache(maxsize=128)
def _compiled(path: Path, mtime_ns: int) -> CodeType:
    return compile(path.read_bytes(), str(path), "exec", dont_inherit=True)


def really_import(path: Path) -> ModuleType:
    """Runs the file as Python would, with the DSL in the place of the `patchgen` packages."""
    root, name = package_of(path)
    found = importlib.util.spec_from_file_location(name.removesuffix(".py"), path)
    if found is None or found.loader is None:
        raise BadInput(f"{path.name} is no Python module", "give it a .py name")
    module = importlib.util.module_from_spec(found)
    with _dsl_in_sys_modules(root, _dsl_names(path)):
        found.loader.exec_module(module)
    return module


def _dsl_names(path: Path) -> set[str]:
    """The modules that a file imports the DSL from, with the packages around them; ours need no stand-in."""
    named = {match[0] for match in DSL.finditer(path.read_text(encoding="utf-8")) if match["framework"] != OWN}
    return {"patchgen", "patchgen.patch_spec", *named, *(name.removesuffix(".patch_spec") for name in named)}


@contextmanager
def _dsl_in_sys_modules(root: Path, names: set[str]) -> Iterator[None]:
    before = {name: sys.modules.get(name) for name in names}
    known = set(sys.modules)
    sys.modules.update(dict.fromkeys(names, spec))
    sys.path.insert(0, str(root))
    try:
        yield
    finally:
        sys.path.remove(str(root))
        for name in [name for name in sys.modules if name.endswith(CONFIG_SUFFIX) and name not in known]:
            del sys.modules[name]
        for name, module in before.items():
            if module is None:
                sys.modules.pop(name, None)
            else:
                sys.modules[name] = module
