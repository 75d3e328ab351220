"""What the installed diffusers exports, read without importing it."""

import ast
from functools import cache
from pathlib import Path

from omni_kit.upstream.library import find_library


def is_diffusers_class(name: str) -> bool:
    """Whether diffusers offers a class of this name.

    Raises:
        MissingRequirement: diffusers is not installed, and the name is none of transformers' model types.
    """
    return bool(name) and not name.islower() and name in _exported(find_library("diffusers").root / "__init__.py")


@cache
def _exported(init: Path) -> frozenset[str]:
    """Every string of the file: the tables of what is imported from where are made of them."""
    constants = (
        node for node in ast.walk(ast.parse(init.read_text(encoding="utf-8"))) if isinstance(node, ast.Constant)
    )
    return frozenset(node.value for node in constants if isinstance(node.value, str))
