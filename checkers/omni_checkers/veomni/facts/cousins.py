"""Functions of other integrations that say mostly what one of this directory says: one was copied from the other."""

import ast
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from omni_checkers.engine.files import File, read_file
from omni_checkers.engine.rule import NotApplicable
from omni_checkers.symbolic.alterations import Copy
from omni_checkers.symbolic.lines import lines_of
from omni_checkers.veomni.facts.constants import veomni_package
from omni_checkers.veomni.facts.generated import PatchConfigFile
from omni_kit.pysource.library import Library
from omni_kit.targets.veomni.model_dir import ModelDir

# Of the lines of either, those that both have; below this, two functions have no more than a habit in common.
_LIKE = 0.6
# Lines: shorter functions are alike by chance.
_LEAST = 4
_REGISTERS = "MODELING_REGISTRY"
_NOT_BY_HAND = ("generated", "__pycache__")


@dataclass(frozen=True, eq=False)
class Function:
    """A function or method that somebody wrote.

    Attributes:
        name: with that of its class.
    """

    file: Path
    name: str
    node: ast.FunctionDef

    @cached_property
    def lines(self) -> frozenset[str]:
        """What it says, line by line."""
        return frozenset(line.code for line in lines_of(self.node))


@dataclass(frozen=True, eq=False)
class Kin:
    """A function of the directory, and those of other integrations that are like it, as copies of each other."""

    function: Function
    cousins: list[tuple[Function, Copy]]


Places = Mapping[str, Mapping[Function, list[int]]]
"""What a line says -> the functions that say it, and which of their lines that is."""


def kin(model_dir: ModelDir, files: dict[Path, File]) -> list[Kin]:
    """Every function of the directory that others have, too.

    Raises:
        NotApplicable: no other integration has one that is like it.
    """
    places = [places_in(directory) for directory in directories_beside(model_dir)]
    found = []
    for file in files.values():
        for ours in functions_of(file) if by_hand(file.path, model_dir.path) else ():
            codes = dict.fromkeys(line.code for line in lines_of(ours.node))
            shared = Counter(other for code in codes for known in places for other in known.get(code, ()))
            like = [other for other, count in shared.items() if count >= _LIKE * max(len(ours.lines), len(other.lines))]
            if like:
                found.append(Kin(ours, [(other, Copy(ours.node, other.node)) for other in like]))
    if not found:
        raise NotApplicable("no other integration has a function that is like one of this directory")
    return found


def directories_beside(model_dir: ModelDir) -> list[Path]:
    """The directories of other integrations: those of its VeOmni, and for a plugin those beside it."""
    package = veomni_package(model_dir)
    inits = sorted(package.glob("models/*/*/__init__.py")) if package is not None else []
    if model_dir.style == "plugin":
        beside = sorted(model_dir.path.parent.glob("*/__init__.py"))
        inits += [file for file in beside if _REGISTERS in file.read_text(encoding="utf-8", errors="replace")]
    return [file.parent for file in inits if file.parent.resolve() != model_dir.path]


def upstream_lines(configs: list[PatchConfigFile], transformers: Library) -> frozenset[str]:
    """What upstream's own files of the models that are patched say, line by line, and the words of their configs."""
    files = [transformers.module_file(config.source_module) for config in configs if config.source_module]
    return frozenset(
        line for folder in {file.parent for file in files if file is not None} for line in _said_in(folder)
    )


@cache
def _said_in(folder: Path) -> frozenset[str]:
    found: set[str] = set()
    for path in sorted(folder.glob("*.py")):
        file = read_file(path)
        for function in functions_of(file):
            found |= function.lines
        if path.name.startswith("configuration_"):
            found |= {node.target.id for node in file.nodes(ast.AnnAssign) if isinstance(node.target, ast.Name)}
            found |= {node.attr for node in file.nodes(ast.Attribute)}
    return frozenset(found)


@cache
def functions_in(directory: Path) -> tuple[Function, ...]:
    """The functions that somebody wrote in an integration's directory."""
    paths = [path for path in sorted(directory.rglob("*.py")) if by_hand(path, directory)]
    return tuple(function for path in paths for function in functions_of(read_file(path)))


def own_helpers(one: Function, other: Function) -> set[str]:
    """The functions that stand beside `other`, and not beside `one`."""
    return _beside(other.file) - _beside(one.file)


def _beside(path: Path) -> set[str]:
    tree = read_file(path).tree
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)} if tree is not None else set()


@cache
def places_in(directory: Path) -> Places:
    """Where the lines of an integration stand."""
    found: defaultdict[str, dict[Function, list[int]]] = defaultdict(dict)
    for function in functions_in(directory):
        for number, line in enumerate(lines_of(function.node)):
            found[line.code].setdefault(function, []).append(number)
    return found


def by_hand(path: Path, directory: Path) -> bool:
    """Whether a file of an integration is written by somebody, and not generated."""
    return not set(path.relative_to(directory).parts) & set(_NOT_BY_HAND)


def functions_of(file: File) -> Iterator[Function]:
    """The functions and methods of a file that are long enough to be compared."""
    for node in file.tree.body if file.tree is not None else ():
        for item in node.body if isinstance(node, ast.ClassDef) else [node]:
            if isinstance(item, ast.FunctionDef):
                name = f"{node.name}.{item.name}" if isinstance(node, ast.ClassDef) else item.name
                function = Function(file.path, name, item)
                if len(function.lines) >= _LEAST:
                    yield function
