"""Exports of a diffusers, and the files of its classes, read without importing it."""

import ast
import re
from functools import cache
from pathlib import Path

from omni_kit.pysource.classes import ClassRef
from omni_kit.pysource.library import Library, find_library
from omni_kit.pysource.source import read_source

# A class at the beginning of a line; `^` would be looked for at every place of the library's text.
_CLASS = re.compile(r"\nclass (\w+)\b")
# Where the library keeps its classes; the first parts of a file's place tell what a class is.
MODELS, TRANSFORMERS = "models", "models/transformers"
PIPELINES, MODULAR, SCHEDULERS, GUIDERS = "pipelines", "modular_pipelines", "schedulers", "guiders"
_PLACES = (MODELS, PIPELINES, MODULAR, SCHEDULERS, GUIDERS)
_MODEL = "ModelMixin"  # what every model of the library is
_PIPELINE = "DiffusionPipeline"
_LOADED = frozenset({_MODEL, "ConfigMixin", "PreTrainedModel"})  # what is loaded by its class is one of these


def is_diffusers_class(name: str, library: Library | None = None) -> bool:
    """Return whether diffusers offers a class of this name.

    Args:
        library: the diffusers to read; the installed one without it.

    Raises:
        MissingRequirement: diffusers is not installed, and the name is none of transformers' model types.
    """
    return bool(name) and not name.islower() and name in _exported((library or find_library("diffusers")).root)


@cache
def _exported(root: Path) -> frozenset[str]:
    """Return every string of the package's file: the tables of what is imported from where are made of them."""
    tree = ast.parse((root / "__init__.py").read_text(encoding="utf-8"))
    constants = (node for node in ast.walk(tree) if isinstance(node, ast.Constant))
    return frozenset(node.value for node in constants if isinstance(node.value, str))


def class_names(library: Library) -> list[str]:
    """Return the classes of models and pipelines that the library defines."""
    return [name for part in (MODELS, PIPELINES, MODULAR) for name in _defined(library, part) if name[0] != "_"]


def place_of(library: Library, name: str) -> str | None:
    """Return the file that defines a class, relative to the package ("models/transformers/transformer_wan.py"), or
    None.
    """
    return next((found[name] for part in _PLACES if name in (found := _defined(library, part))), None)


def find_class(library: Library, name: str) -> ClassRef | None:
    """Return a class with the file that defines it, or None.

    Raises:
        BadInput: that file is no Python that can be read.
    """
    place = place_of(library, name)
    if place is None:
        return None
    source = read_source(library, library.root / place)
    return ClassRef(source, source.classes[name]) if name in source.classes else None


def is_model(cls: ClassRef) -> bool:
    """Return whether a class is a whole model, and no part of one."""
    return any(isinstance(entry, ClassRef) and entry.node.name == _MODEL for entry in cls.mro[1:])


def is_component(cls: ClassRef) -> bool:
    """Return whether a class is one of those that pipelines are given, models and processors, and no pipeline
    itself.
    """
    names = {entry.node.name if isinstance(entry, ClassRef) else entry.rpartition(".")[2] for entry in cls.mro[1:]}
    return bool(names & _LOADED) and _PIPELINE not in names


def is_transformer(cls: ClassRef) -> bool:
    """Return whether a class is a whole model, and one of those that the library calls transformers."""
    folder = cls.source.path.parent
    return is_model(cls) and folder == cls.source.library.root / TRANSFORMERS


def transformer_names(library: Library) -> list[str]:
    """Return the names of the transformers that the library exports, in the order of their files."""
    exported = _exported(library.root)
    names = (name for name in sorted(_defined(library, TRANSFORMERS).items(), key=lambda item: item[1]))
    return [name for name, _ in names if name in exported]


@cache
def _defined(library: Library, part: str) -> dict[str, str]:
    """Class -> file, of all classes below a folder of the package."""
    found: dict[str, str] = {}
    for file in sorted((library.root / part).rglob("*.py"), reverse=True):
        place = file.relative_to(library.root).as_posix()
        found |= dict.fromkeys(_CLASS.findall("\n" + file.read_text(encoding="utf-8")), place)
    return found
