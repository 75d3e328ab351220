"""Executes a config file without importing what it mentions.

The file runs with its own `__import__`: the DSL is always omni-kit's, sibling configs are run the same way, the
standard library is real, and everything else is a stand-in. `sys.modules` is not touched. When the file's own code
needs a real value, it is run again with real imports.
"""

import builtins
import importlib
import importlib.util
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from omni_kit.errors import BadInput
from omni_kit.patchgen import spec
from omni_kit.patchgen.locate import Libraries, package_of
from omni_kit.patchgen.spec import Origin, PatchConfig
from omni_kit.patchgen.standins import StandIn

# The DSL under the names that it goes by: on its own, inside a framework, and here.
_DSL = re.compile(r"(?:(?P<framework>\w+)\.)?patchgen(?:\.(?:patch_spec|spec))?")
_OWN = "omni_kit"
CONFIG_SUFFIX = "_patch_gen_config"


@dataclass
class LoadedConfig:
    """A config that ran.

    `name` is its dotted module (or file name outside packages); `registrations` are the lines of all files that
    registered something; `siblings` are the config files that it runs, itself included, by path; `frameworks` are the
    packages that it imports the DSL from.
    """

    config: PatchConfig
    path: Path
    name: str
    registrations: set[Origin]
    notes: list[str] = field(default_factory=list)
    siblings: dict[Path, ModuleType] = field(default_factory=dict)
    frameworks: set[str] = field(default_factory=set)


def find_config(reference: str | Path, libraries: Libraries) -> Path:
    """The file of a config named by path or by dotted module.

    Raises:
        BadInput: there is no such file or module.
    """
    path = Path(reference)
    if path.suffix == ".py" or "/" in str(reference):
        if path.is_file():
            return path.resolve()
        raise BadInput(f"there is no config file {reference}", "name a file or a dotted module")
    roots = Libraries(libraries.unpacked, (*libraries.roots, Path.cwd()))
    found = roots.file_of(str(reference))
    if found is None:
        raise BadInput(f"there is no config module {reference}", "check the name, or give the path of the file")
    return found.resolve()


def load_config(path: Path, libraries: Libraries) -> LoadedConfig:
    """Runs the config at `path` and returns its `config`.

    Raises:
        BadInput: the file fails, or has no PatchConfig named `config`.
    """
    session = _Session(libraries)
    notes: list[str] = []
    with spec.recording() as registrations:
        try:
            module = session.run(path)
        except (BadInput, SyntaxError, ImportError, NameError, SystemExit) as error:
            raise _failed(path, error) from error
        except Exception as error:
            module = _really_import(path)
            notes.append(f"{path.name} was loaded with real imports: its top-level code needs {error}")
    config = getattr(module, "config", None)
    if not isinstance(config, PatchConfig):
        raise BadInput(
            f"{path.name} has no PatchConfig named 'config'", "assign config = PatchConfig(...) at module level"
        )
    _validate(config, path)
    return LoadedConfig(
        config, path, package_of(path)[1], set(registrations), notes, session.modules, session.frameworks
    )


def _validate(config: PatchConfig, path: Path) -> None:
    """What a config can get wrong and Python does not notice."""
    if Path(config.target_file).name != config.target_file or not config.target_file.endswith(".py"):
        raise BadInput(f"{path.name}: target_file {config.target_file!r} is no plain file name", "name a .py file")
    for patch in config.patches:
        if not isinstance(patch, spec.Patch) or not isinstance(patch.target, str) or not patch.target.strip():
            raise BadInput(f"{path.name}: {patch!r} is no patch of a named target", "use the methods of PatchConfig")
        pairs = (
            [*patch.name_map.items()] if isinstance(patch.name_map, dict) else [] if not patch.name_map else [(0, 0)]
        )
        if any(not isinstance(name, str) or not name.isidentifier() for pair in pairs for name in pair):
            raise BadInput(
                f"{path.name}: the name_map of {patch.target} maps no identifiers", "map identifier to identifier"
            )


class _Session:
    """One config and its siblings; nothing is shared between configs, because siblings may change each other's."""

    def __init__(self, libraries: Libraries) -> None:
        self.libraries = libraries
        self.modules: dict[Path, ModuleType] = {}
        self.frameworks: set[str] = set()
        self.builtins = {**vars(builtins), "__import__": self.import_}

    def run(self, path: Path) -> ModuleType:
        if path in self.modules:
            return self.modules[path]
        name = package_of(path)[1]
        module = ModuleType(name.removesuffix(".py"))
        module.__file__ = str(path)
        module.__package__ = module.__name__.rpartition(".")[0]
        module.__dict__["__builtins__"] = self.builtins
        self.modules[path] = module
        exec(_compiled(path, path.stat().st_mtime_ns), module.__dict__)
        return module

    def import_(
        self,
        name: str,
        importer: dict[str, Any] | None = None,
        scope: dict[str, Any] | None = None,
        fromlist: tuple[str, ...] | None = (),
        level: int = 0,
    ) -> Any:
        if level:
            return self._relative(Path((importer or {})["__file__"]), name, tuple(fromlist or ()), level)
        if (dsl := _DSL.fullmatch(name)) is not None:
            self.frameworks |= {dsl["framework"]} - {None, _OWN}
            return spec if fromlist or "." not in name else _package(name)
        top = name.partition(".")[0]
        if top in sys.stdlib_module_names:
            return builtins.__import__(name, importer, scope, fromlist or (), 0)
        return self._stood_in(name, importer or {}, tuple(fromlist or ()))

    def _stood_in(self, name: str, importer: dict[str, Any], fromlist: tuple[str, ...]) -> Any:
        home = Path(importer["__file__"])
        libraries = Libraries(self.libraries.unpacked, (package_of(home)[0], *self.libraries.roots))
        if _may_be_sibling(name, fromlist):
            path = libraries.file_of(name)
            if path is not None and name.endswith(CONFIG_SUFFIX):
                return self.run(path.resolve()) if fromlist else _package(name, self.run(path.resolve()))
            if path is not None:
                return self._with_members(StandIn(name), path.parent, fromlist)
        beside = home.parent / f"{name}.py"
        if "." not in name and beside.is_file():
            return self.run(beside)
        return StandIn(name) if fromlist else StandIn(name.partition(".")[0])

    def _relative(self, home: Path, name: str, fromlist: tuple[str, ...], level: int) -> Any:
        folder = home.parents[level - 1]
        place = folder.joinpath(*name.split(".")) if name else folder
        if place.with_name(place.name + ".py").is_file() and name:
            path = place.with_name(place.name + ".py")
            if path.parent == home.parent or path.stem.endswith(CONFIG_SUFFIX):
                return self.run(path)
        elif not place.is_dir():
            raise ModuleNotFoundError(f"No module named '{'.' * level}{name}' beside {home.name}")
        package = package_of(place / "__init__.py")[1].removesuffix(".__init__")
        return self._with_members(StandIn(package), place, fromlist)

    def _with_members(self, package: StandIn, folder: Path, fromlist: tuple[str, ...]) -> StandIn:
        for member in fromlist:
            if member.endswith(CONFIG_SUFFIX) and (folder / f"{member}.py").is_file():
                setattr(package, member, self.run((folder / f"{member}.py").resolve()))
        return package


def _may_be_sibling(name: str, fromlist: tuple[str, ...]) -> bool:
    return name.endswith(CONFIG_SUFFIX) or any(member.endswith(CONFIG_SUFFIX) for member in fromlist)


def _package(name: str, leaf: Any = spec) -> StandIn:
    """The top-level stand-in from which the dotted `name` leads to `leaf`, as `import a.b.c` wants it."""
    top, *rest = name.split(".")
    package = current = StandIn(top)
    for part in rest[:-1]:
        current = getattr(current, part)
    setattr(current, rest[-1], leaf)
    return package


@lru_cache(maxsize=128)
def _compiled(path: Path, mtime_ns: int) -> CodeType:
    return compile(path.read_bytes(), str(path), "exec", dont_inherit=True)


def _really_import(path: Path) -> ModuleType:
    """Runs the file as Python would, with the DSL in the place of the `patchgen` packages."""
    root, name = package_of(path)
    found = importlib.util.spec_from_file_location(name.removesuffix(".py"), path)
    if found is None or found.loader is None:
        raise BadInput(f"{path.name} is no Python module", "give it a .py name")
    module = importlib.util.module_from_spec(found)
    with _dsl_in_sys_modules(root, _dsl_names(path)):
        try:
            found.loader.exec_module(module)
        except (Exception, SystemExit) as error:
            raise _failed(path, error) from error
    return module


def _dsl_names(path: Path) -> set[str]:
    """The modules that a file imports the DSL from, with the packages around them; ours need no stand-in."""
    named = {match[0] for match in _DSL.finditer(path.read_text(encoding="utf-8")) if match["framework"] != _OWN}
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


def _failed(path: Path, error: BaseException) -> BadInput:
    line = _line_in(path, error)
    where = f"{path.name}:{line}" if line else path.name
    return BadInput(f"{where} cannot be loaded: {type(error).__name__}: {error}", "run the file with python to see why")


def _line_in(path: Path, error: BaseException) -> int | None:
    if isinstance(error, SyntaxError):
        return error.lineno
    line, trace = None, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(path):
            line = trace.tb_lineno
        trace = trace.tb_next
    return line
