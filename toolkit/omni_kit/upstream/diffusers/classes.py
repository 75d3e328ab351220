"""What a diffusers exports, and where its classes stand, read without importing it."""

import ast
import re
from functools import cache
from pathlib import Path

from omni_kit.upstream.library import Library, find_library

_CLASS = re.compile(r"^class (\w+)\b", re.MULTILINE)
# Where the library keeps its models and pipelines; the first part of a file's place tells what a class is.
MODELS, TRANSFORMERS = "models", "models/transformers"
PIPELINES, MODULAR = "pipelines", "modular_pipelines"


def is_diffusers_class(name: str, library: Library | None = None) -> bool:
    """Whether diffusers offers a class of this name.

    Args:
        library: the diffusers to read; the installed one without it.

    Raises:
        MissingRequirement: diffusers is not installed, and the name is none of transformers' model types.
    """
    return bool(name) and not name.islower() and name in _exported((library or find_library("diffusers")).root)


@cache
def _exported(root: Path) -> frozenset[str]:
    """Every string of the package's file: the tables of what is imported from where are made of them."""
    tree = ast.parse((root / "__init__.py").read_text(encoding="utf-8"))
    constants = (node for node in ast.walk(tree) if isinstance(node, ast.Constant))
    return frozenset(node.value for node in constants if isinstance(node.value, str))


def class_names(library: Library) -> list[str]:
    """The classes of models and pipelines that the library defines."""
    return [name for part in (MODELS, PIPELINES, MODULAR) for name in _defined(library, part) if name[0] != "_"]


def place_of(library: Library, name: str) -> str | None:
    """The file that defines a class, relative to the package ("models/transformers/transformer_wan.py"), or None."""
    return next(
        (found[name] for part in (MODELS, PIPELINES, MODULAR) if name in (found := _defined(library, part))), None
    )


@cache
def _defined(library: Library, part: str) -> dict[str, str]:
    """Class -> file, of all classes below a folder of the package."""
    files = sorted((library.root / part).rglob("*.py"))
    return {
        name: file.relative_to(library.root).as_posix()
        for file in reversed(files)
        for name in _CLASS.findall(file.read_text(encoding="utf-8"))
    }
