"""Resolution of a config's imports: the DSL, a sibling config, the standard library, or a stand-in."""

import re
import sys
from abc import ABC, abstractmethod
from pathlib import Path
from types import ModuleType
from typing import Any

from omni_kit.patchgen import spec
from omni_kit.patchgen.locate import Libraries, package_of
from omni_kit.patchgen.standins import StandIn

CONFIG_SUFFIX = "_patch_gen_config"
# The DSL under the names that it goes by: on its own, inside a framework, and here.
DSL = re.compile(r"(?:(?P<framework>\w+)\.)?patchgen(?:\.(?:patch_spec|spec))?")
OWN = "omni_kit"


class Session(ABC):
    """One config and its siblings; nothing is shared between configs, because siblings may change each other's.

    Attributes:
        modules: every file that was gone through, by path.
        frameworks: the packages that they import the DSL from.
    """

    def __init__(self, libraries: Libraries) -> None:
        self.libraries = libraries
        self.modules: dict[Path, ModuleType] = {}
        self.frameworks: set[str] = set()

    @abstractmethod
    def fill(self, module: ModuleType, path: Path) -> None:
        """Give a module the names that its file defines."""

    @abstractmethod
    def standard(self, name: str, names: tuple[str, ...]) -> Any:
        """Return a module of the standard library, as `__import__` gives it."""

    def run(self, path: Path) -> ModuleType:
        """Return the module of a file, which is gone through once."""
        if path not in self.modules:
            name = package_of(path)[1]
            module = ModuleType(name.removesuffix(".py"))
            module.__file__ = str(path)
            module.__package__ = module.__name__.rpartition(".")[0]
            self.modules[path] = module
            self.fill(module, path)
        return self.modules[path]

    def imported(self, name: str, home: Path, names: tuple[str, ...], level: int) -> Any:
        """Return the result of `__import__`: the module when `names` are imported from it, else its first package.

        Raises:
            ModuleNotFoundError: a relative import leads to nothing.
        """
        if level:
            return self._relative(home, name, names, level)
        if (dsl := DSL.fullmatch(name)) is not None:
            self.frameworks |= {dsl["framework"]} - {None, OWN}
            return spec if names or "." not in name else _package(name)
        if name.partition(".")[0] in sys.stdlib_module_names:
            return self.standard(name, names)
        return self._stood_in(name, home, names)

    def configs(self) -> dict[Path, spec.PatchConfig]:
        """Return the `config` of every file that has one."""
        found = {path: vars(module).get("config") for path, module in self.modules.items()}
        return {path: config for path, config in found.items() if isinstance(config, spec.PatchConfig)}

    def _stood_in(self, name: str, home: Path, names: tuple[str, ...]) -> Any:
        root, own = package_of(home)
        libraries = Libraries(self.libraries.unpacked, (root, *self.libraries.roots))
        if _may_be_sibling(name, names):
            path = libraries.file_of(name)
            if path is not None and name.endswith(CONFIG_SUFFIX):
                module = self.run(path.resolve())
                return module if names or "." not in name else _package(name, module)
            if path is not None:
                return self._with_members(StandIn(name), path.parent, names)
        beside = home.parent / f"{name}.py"
        if own == home.name and "." not in name and beside.is_file():  # inside a package, this is another module
            return self.run(beside)
        return StandIn(name) if names else StandIn(name.partition(".")[0])

    def _relative(self, home: Path, name: str, names: tuple[str, ...], level: int) -> Any:
        if level > len(home.parents):
            raise ModuleNotFoundError(f"No module named '{'.' * level}{name}' next to {home.name}")
        folder = home.parents[level - 1]
        place = folder.joinpath(*name.split(".")) if name else folder
        if name and place.with_name(place.name + ".py").is_file():
            path = place.with_name(place.name + ".py")
            if path.parent == home.parent or path.stem.endswith(CONFIG_SUFFIX):
                return self.run(path)
        elif not place.is_dir():
            raise ModuleNotFoundError(f"No module named '{'.' * level}{name}' next to {home.name}")
        package = package_of(place / "__init__.py")[1].removesuffix(".__init__")
        return self._with_members(StandIn(package), place, names)

    def _with_members(self, package: StandIn, folder: Path, names: tuple[str, ...]) -> StandIn:
        for member in names:
            if member.endswith(CONFIG_SUFFIX) and (folder / f"{member}.py").is_file():
                setattr(package, member, self.run((folder / f"{member}.py").resolve()))
        return package


def _may_be_sibling(name: str, names: tuple[str, ...]) -> bool:
    return name.endswith(CONFIG_SUFFIX) or any(member.endswith(CONFIG_SUFFIX) for member in names)


def _package(name: str, leaf: Any = spec) -> StandIn:
    """Return the top-level stand-in from which the dotted `name` leads to `leaf`, as `import a.b.c` requires it."""
    top, *rest = name.split(".")
    package = current = StandIn(top)
    for part in rest[:-1]:
        current = getattr(current, part)
    setattr(current, rest[-1], leaf)
    return package
