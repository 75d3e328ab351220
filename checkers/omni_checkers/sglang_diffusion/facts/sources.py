"""The files that an integration speaks of: its own, SGLang's and diffusers', read as one library."""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omni_kit.errors import BadInput, MissingRequirement
from omni_kit.pysource.classes import ClassRef
from omni_kit.pysource.library import Library, find_library
from omni_kit.pysource.nodes import constant
from omni_kit.pysource.source import Imported, SourceFile, absolute_module, dotted, read_source
from omni_kit.targets.sglang_diffusion.pipeline_dir import PipelineDir

SGLANG = "sglang"
DIFFUSION = "sglang.multimodal_gen"


@dataclass(frozen=True)
class Sources(Library):
    """Several packages whose imports lead into each other; `name` and `root` are those of the integration itself.

    Attributes:
        others: the further packages; of one that is not there nothing is read.
    """

    others: tuple[Library, ...] = ()

    @property
    def _all(self) -> tuple[Library, ...]:
        return Library(self.name, self.root), *self.others

    def module_file(self, module: str) -> Path | None:
        """Return the file of a dotted module of any of the packages; None if no valid Python file exists."""
        found = (library.module_file(module) for library in self._all)
        file = next((one for one in found if one is not None), None)
        return file if file is not None and self.read(file) is not None else None

    def module_name(self, file: Path) -> str:
        """Return the dotted name of a file of any of the packages."""
        return next(library.module_name(file) for library in self._all if file.is_relative_to(library.root))

    def show(self, file: Path) -> str:
        """Return a file as people cite it."""
        holder = next((one for one in self._all if file.is_relative_to(one.root)), None)
        return holder.show(file) if holder is not None else file.as_posix()

    def read(self, file: Path) -> SourceFile | None:
        """Return a parsed file; None if it cannot be read, or belongs to none of the packages."""
        if not any(file.is_relative_to(library.root) for library in self._all):
            return None
        try:
            return read_source(self, file)
        except BadInput:
            return None

    def module(self, name: str) -> SourceFile | None:
        """Return a module by its dotted name."""
        file = self.module_file(name)
        return self.read(file) if file is not None else None

    def cls(self, name: str) -> ClassRef | None:
        """Return a class by its dotted name, followed through the packages that offer it."""
        module, _, last = name.rpartition(".")
        source = self.module(module)
        found = source.resolve_class(last) if source is not None else None
        return ClassRef(*found) if found is not None else None

    @property
    def diffusion(self) -> Path | None:
        """Return SGLang's folder of diffusion; None if SGLang is not installed."""
        file = self.module_file(f"{DIFFUSION}.registry")
        return file.parent if file is not None else None


def sources_of(directory: PipelineDir) -> Sources:
    """Return the packages that a pipeline's files belong to and import from."""
    if directory.in_tree:
        root = next(parent.parent for parent in directory.path.parents if parent.name == "multimodal_gen")
        return sources_at(root)
    known = (_library(SGLANG), _library("diffusers"))
    return Sources(directory.path.name, directory.path, tuple(one for one in known if one is not None))


def sources_at(root: Path) -> Sources:
    """Return the packages around SGLang's own pipelines.

    Args:
        root: the folder `sglang`.
    """
    diffusers = _library("diffusers")
    return Sources(SGLANG, root, (diffusers,) if diffusers is not None else ())


def _library(name: str) -> Library | None:
    try:
        return find_library(name)
    except (BadInput, MissingRequirement):
        return None


def local_imports(source: SourceFile, node: ast.AST) -> Mapping[str, Imported]:
    """Return names bound by imports inside a function or a class."""
    found: dict[str, Imported] = {}
    for item in ast.walk(node):
        if isinstance(item, ast.ImportFrom):
            module = absolute_module(source.package, item)
            found |= {alias.asname or alias.name: Imported(module, alias.name) for alias in item.names}
    return found


def class_named(source: SourceFile, node: ast.AST | None, within: ast.AST | None = None) -> ClassRef | None:
    """Return the class that a name means in a file, or inside a function that imports it."""
    name = dotted(node) if node is not None else None
    if name is None:
        return None
    if within is not None and (imported := local_imports(source, within).get(name)) is not None:
        home = source.home_of(imported)
        found = home[0].resolve_class(home[1]) if home is not None else None
    else:
        found = source.resolve_class(name)
    return ClassRef(*found) if found is not None else None


def unseen_bases(cls: ClassRef) -> list[str]:
    """Bases that are in no package that is read."""
    return [entry for entry in cls.mro if isinstance(entry, str) and entry not in _PLAIN]


_PLAIN = frozenset({"ABC", "object", "Protocol", "Generic", "str", "Enum", "StrEnum", "nn.Module", "Module"})


def own_classes(cls: ClassRef) -> Iterator[ClassRef]:
    """Return the class and its bases that can be read, nearest first."""
    return (entry for entry in cls.mro if isinstance(entry, ClassRef))


def fields(cls: ClassRef) -> dict[str, ast.AnnAssign]:
    """Return the annotated names in a class body, but for those of the class itself."""
    found = {
        item.target.id: item
        for item in cls.node.body
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
    }
    return {name: item for name, item in found.items() if "ClassVar" not in ast.unparse(item.annotation)}


def default(cls: ClassRef, name: str) -> tuple[ClassRef, Any] | None:
    """Return the default of a dataclass's field, and the class that gives it."""
    for entry in own_classes(cls):
        if name in fields(entry):
            return entry, constant(fields(entry)[name].value)
    return None
