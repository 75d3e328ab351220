"""Runs a config without importing the packages in it, as a worker of `loader.run_config`.

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
from omni_kit.patchgen.loader import CannotLoad, LoadedConfig, loaded_config
from omni_kit.patchgen.locate import Libraries, package_of
from omni_kit.patchgen.spec import Origin
from omni_kit.patchgen.transfer import as_json, place
from omni_kit.pysource.source import read_text


def reply(request: dict[str, Any]) -> dict[str, Any]:
    """Run a config and return its content, or why it fails; see `loader.run_config`."""
    unpacked = {name: Path(place) for name, place in request["unpacked"].items()}
    libraries = Libraries(unpacked, tuple(map(Path, request["roots"])))
    try:
        loaded = run_here(Path(request["path"]), libraries)
    except CannotLoad as why:
        return {"error": [why.message, why.hint], "origin": as_json(why.origin)}
    others = {str(path): one for path, one in loaded.siblings.items() if one is not loaded.config}
    return {
        "config": as_json(loaded.config),
        "siblings": as_json(others),
        "own": [str(path) for path, one in loaded.siblings.items() if one is loaded.config],
        "registrations": as_json(loaded.registrations),
        "frameworks": sorted(loaded.frameworks),
        "notes": loaded.notes,
    }


def run_here(path: Path, libraries: Libraries) -> LoadedConfig:
    """Run the config at `path` in this process; its functions and classes become positions.

    Raises:
        CannotLoad: the file fails, or has no PatchConfig named `config`.
    """
    runner = Runner(libraries)
    notes: list[str] = []
    with spec.recording() as registrations:
        try:
            module = runner.run(path)
        except (BadInput, SyntaxError, ImportError, NameError, SystemExit) as error:
            raise _failed(path, error) from error
        except Exception as error:
            notes.append(f"{path.name} was loaded with real imports, because its top-level code needs {error}")
            try:
                module = really_import(path)
            except (Exception, SystemExit) as second:
                raise _failed(path, second) from second
        loaded = loaded_config(getattr(module, "config", None), path, runner.configs())
    for config in {id(one): one for one in (loaded.config, *loaded.siblings.values())}.values():
        place(config, libraries)
    loaded.registrations, loaded.frameworks, loaded.notes = set(registrations), runner.frameworks, notes
    return loaded


class Runner(Session):
    """Runs configs."""

    def __init__(self, libraries: Libraries) -> None:
        super().__init__(libraries)
        self._builtins = {**vars(builtins), "__import__": self._import}

    def fill(self, module: ModuleType, path: Path) -> None:
        """Run the file in its module."""
        module.__dict__["__builtins__"] = self._builtins
        exec(_compiled(path, path.stat().st_mtime_ns), module.__dict__)

    def standard(self, name: str, names: tuple[str, ...]) -> Any:
        """Return the module itself."""
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
    """Run the file as Python would, with the DSL instead of the `patchgen` packages."""
    root, name = package_of(path)
    found = importlib.util.spec_from_file_location(name.removesuffix(".py"), path)
    if found is None or found.loader is None:
        raise BadInput(f"{path.name} is not a Python module", "rename it to end in .py")
    module = importlib.util.module_from_spec(found)
    with _dsl_in_sys_modules(root, _dsl_names(path)):
        found.loader.exec_module(module)
    return module


def _dsl_names(path: Path) -> set[str]:
    """Return the modules that a file imports the DSL from, with the packages around them; ours need no stand-in."""
    named = {match[0] for match in DSL.finditer(read_text(path)) if match["framework"] != OWN}
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


def _failed(path: Path, error: BaseException) -> CannotLoad:
    line = _line_in(path, error)
    said = error.msg if isinstance(error, SyntaxError) and line else error  # else it repeats file and line
    message = f"{path.name} cannot be loaded: {type(error).__name__}: {said}"
    origin = Origin(str(path), line) if line else None
    return CannotLoad(message, "run the file with python to see why", origin=origin)


def _line_in(path: Path, error: BaseException) -> int | None:
    if isinstance(error, SyntaxError):
        return error.lineno
    line, trace = None, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(path):
            line = trace.tb_lineno
        trace = trace.tb_next
    return line
