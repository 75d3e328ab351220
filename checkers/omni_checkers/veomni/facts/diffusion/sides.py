"""The two sides of a diffusion model: the transformer that is trained, and the model that makes its conditions."""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from omni_checkers.engine.facts import fact
from omni_checkers.engine.files import File
from omni_checkers.engine.rule import NotApplicable
from omni_checkers.symbolic import Class, Evaluator, Function, Oracle, Program, Raised, Symbol, Value
from omni_checkers.veomni.facts.registry import CONFIG, MODELING, Registration
from omni_kit.errors import BadInput, MissingRequirement
from omni_kit.pysource.classes import ClassRef
from omni_kit.pysource.library import Library, find_library
from omni_kit.targets.veomni.model_dir import ModelDir
from omni_kit.upstream.diffusers.classes import find_class, is_diffusers_class, is_model

COMPANION = "condition_model_type"
_TREE = "veomni.models.diffusers."


@dataclass(frozen=True)
class Side:
    """One of the two packages.

    Attributes:
        registered: registry -> what it is given under this key.
        config, model: the classes that the register functions return; None if that cannot be followed.
    """

    key: str
    registered: Mapping[str, Registration]
    config: Class | None
    model: Class | None

    @property
    def place(self) -> tuple[Path, int]:
        """File and line of the first registration of the key."""
        first = next(iter(self.registered.values()))
        return first.path, first.line


@dataclass(frozen=True)
class Diffusion:
    """An integration of a diffusion transformer.

    Attributes:
        library: the diffusers that it is read against; None if none is installed.
    """

    program: Program
    files: Mapping[Path, File]
    sides: tuple[Side, ...]
    library: Library | None

    @cached_property
    def transformer(self) -> Side | None:
        """The side whose config names its companion, or that is named as a class of diffusers."""
        named = [side for side in self.sides if isinstance(self.attribute(side.config, COMPANION), str)]
        known = [side for side in self.sides if self.known(side.key)]
        ends = [side for side in self.sides if side.place[0].parent.name.endswith("_transformer")]
        return next(iter([*named, *known, *ends]), None)

    @cached_property
    def condition(self) -> Side | None:
        """The side that the transformer's config names, else the other one."""
        said = self.attribute(self.transformer.config, COMPANION) if self.transformer else None
        others = [side for side in self.sides if side is not self.transformer]
        return next((side for side in others if side.key == said), next(iter(others), None))

    @cached_property
    def upstream(self) -> ClassRef | None:
        """The model of diffusers that the transformer derives from; None if it is none of diffusers."""
        model = self.transformer.model if self.transformer is not None else None
        for name in self.lineage(model) if model is not None else ():
            found = self.known(str(name).rpartition(".")[2]) if str(name).startswith("diffusers.") else None
            if found is not None:
                return found
        return None

    def known(self, name: str) -> ClassRef | None:
        """Return a model of diffusers by the name of its class."""
        try:
            found = find_class(self.library, name) if self.library is not None else None
        except BadInput:
            return None
        return found if found is not None and is_model(found) else None

    def lineage(self, cls: Class) -> Iterator[Value]:
        """Yield a class and all its bases, depth first; those of a library are Symbols."""
        evaluator = Evaluator(self.program, Oracle([]))
        todo: list[Value] = [cls]
        seen: list[Value] = []
        while todo:
            one = todo.pop(0)
            if one in seen:
                continue
            seen.append(one)
            yield one
            try:
                todo = [*(evaluator.bases(one) if isinstance(one, Class) else ()), *todo]
            except Raised:
                continue

    def attribute(self, cls: Class | None, name: str) -> Value:
        """Return a class attribute, also from a base class in the directory; None without any."""
        for one in self.lineage(cls) if cls is not None else ():
            if isinstance(one, Class) and any(name in _bound(item) for item in one.node.body):
                try:
                    return Evaluator(self.program, Oracle([])).class_attribute(one, name)
                except Raised:
                    return None
        return None

    def method(self, cls: Class | None, name: str) -> "Method | None":
        """Return a method that a class defines, or a base of it that is in the directory."""
        for one in self.lineage(cls) if cls is not None else ():
            if isinstance(one, Class):
                for item in one.node.body:
                    if isinstance(item, ast.FunctionDef) and item.name == name and one.module.path in self.files:
                        return Method(one, item, self.files[one.module.path])
        return None

    def inherits_unseen(self, cls: Class | None) -> bool:
        """Return whether a base lies neither in the directory nor in one of the known libraries."""
        known = ("diffusers.", "transformers.", "torch.", "builtins.", "typing.", "abc.")
        bases = self.lineage(cls) if cls is not None else ()
        return any(not isinstance(one, Class) and not str(one).startswith(known) for one in bases)


@dataclass(frozen=True)
class Method:
    """A method, with the class and the file that it stands in."""

    owner: Class
    node: ast.FunctionDef
    file: File

    @property
    def path(self) -> Path:
        """The file."""
        return self.file.path


@fact
def diffusion(
    model_dir: ModelDir, program: Program, files: dict[Path, File], registrations: list[Registration]
) -> Diffusion:
    """Return the two sides of a diffusion model."""
    if not speaks_of_diffusion(model_dir, files):
        raise NotApplicable("the model is not a diffusion transformer")
    keys = dict.fromkeys(item.key for item in registrations if item.key and item.registry in {CONFIG, MODELING})
    sides = tuple(_side(program, key, registrations) for key in keys)
    if not sides:
        raise NotApplicable("nothing is registered that could be followed")
    try:
        library = find_library("diffusers")
    except (BadInput, MissingRequirement):
        library = None
    return Diffusion(program, files, sides, library)


def speaks_of_diffusion(model_dir: ModelDir, files: Mapping[Path, File]) -> bool:
    """Return whether a directory is of a diffusion model: by its place, by its keys, or by what its configs say."""
    if model_dir.import_name.startswith(_TREE) or any(COMPANION in file.text for file in files.values()):
        return True
    try:
        return any(is_diffusers_class(key) for key in model_dir.registered)
    except (BadInput, MissingRequirement):
        return False


def _side(program: Program, key: str, registrations: list[Registration]) -> Side:
    own = {item.registry: item for item in registrations if item.key == key}
    found = {name: _returned(program, own[name].function) for name in (CONFIG, MODELING) if name in own}
    return Side(key, own, found.get(CONFIG), found.get(MODELING))


def _returned(program: Program, function: Value) -> Class | None:
    """Return the class that a register function returns when nobody names an architecture."""
    if not isinstance(function, Function):
        return None
    value = Evaluator(program, Oracle([])).call_function(function, [], {}).value
    return value if isinstance(value, Class) else None


def _bound(item: ast.stmt) -> set[str]:
    targets = item.targets if isinstance(item, ast.Assign) else [getattr(item, "target", None)]
    names = {target.id for target in targets if isinstance(target, ast.Name)}
    return names | ({item.name} if isinstance(item, (ast.FunctionDef, ast.ClassDef)) else set())


def is_symbol(value: Value, *endings: str) -> bool:
    """Return whether a value is something of a library whose dotted name ends so."""
    return isinstance(value, Symbol) and value.name.rpartition(".")[2] in endings
