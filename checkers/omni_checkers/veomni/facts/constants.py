"""Constants of VeOmni itself that models use: shared key patterns and the like."""

import ast
import importlib.util
import re
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from omni_checkers.symbolic import Evaluator, Module, Oracle, Program, Raised
from omni_kit.files import files_matching
from omni_kit.pysource.source import parse_file, read_text
from omni_kit.targets.veomni.model_dir import ModelDir

_CONSTANTS = (str, int, float, tuple, list, dict, set, frozenset, re.Pattern)


def veomni_package(model_dir: ModelDir) -> Path | None:
    """Return the VeOmni that a model belongs to: its own checkout, or the installed one; None if there is none."""
    if model_dir.style == "in-tree":
        return model_dir.sys_path / "veomni"
    return installed_package()


@cache
def installed_package() -> Path | None:
    """Return the directory of the installed VeOmni; None if it is not installed."""
    spec = importlib.util.find_spec("veomni")
    return Path(next(iter(spec.submodule_search_locations))) if spec and spec.submodule_search_locations else None


@lru_cache(maxsize=16)
def package_texts(package: Path) -> dict[Path, str]:
    """Return the texts of a package's files, by their resolved paths."""
    return {path.resolve(): read_text(path) for path in files_matching(package, "**/*.py")}


@lru_cache(maxsize=256)
def constant(package: Path, name: str) -> Any:
    """Return the value of a top-level constant of VeOmni, such as a compiled pattern; None for everything else."""
    module_name, _, leaf = name.rpartition(".")
    for place in (package, installed_package()):
        program = package_program(place, "veomni") if place is not None else None
        module = program.module(module_name) if program is not None else None
        if program is not None and module is not None and module.path.is_file():
            return _value(program, module, leaf)
    return None


def _value(program: Program, module: Module, leaf: str) -> Any:
    evaluator = Evaluator(program, Oracle([]))
    try:
        scope = evaluator.names_of(module)
        value = scope.names.get(leaf)
    except Raised:
        return None
    return value if isinstance(value, _CONSTANTS) and not evaluator.oracle.taken else None


@lru_cache(maxsize=64)
def package_program(package: Path, name: str) -> Program:
    """Return an installed package, read on demand."""
    return Program(package, name, cache(_tree))


def _tree(path: Path) -> ast.Module | None:
    """Return the tree of a file that is imported, and not judged; whether it compiles is not asked."""
    try:
        return parse_file(path)[1]
    except (OSError, SyntaxError, UnicodeDecodeError):
        return None
