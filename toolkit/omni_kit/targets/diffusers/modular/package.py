"""Recognises the directory of a modular pipeline: a package whose pipeline is a ModularPipeline."""

import ast
from dataclasses import dataclass
from pathlib import Path

from omni_kit.errors import BadInput, reason
from omni_kit.pysource.source import dotted, parse_file

_BASE, _FILE, _BLOCKS = "ModularPipeline", "modular_pipeline.py", "modular_blocks_*.py"
_HINT = f"pass a package with {_FILE}, in which a class is a {_BASE}, and modular_blocks_<name>.py"


@dataclass(frozen=True)
class ModularPackage:
    """One modular pipeline.

    Attributes:
        path: its directory, absolute.
        class_name: the pipeline's class.
    """

    path: Path
    class_name: str


def find_package(path: Path) -> ModularPackage:
    """Return the modular pipeline in a directory; nothing of it is imported.

    Raises:
        BadInput: there is none; what is missing.
    """
    path = path.resolve()
    file = path / _FILE
    if not (path / "__init__.py").is_file() or not file.is_file() or not list(path.glob(_BLOCKS)):
        raise BadInput(f"{path} contains no modular pipeline", _HINT)
    try:
        _, tree = parse_file(file)
    except (OSError, SyntaxError, UnicodeDecodeError) as error:
        raise BadInput(f"cannot read {file}: {reason(error)}") from error
    for node in tree.body:
        names = [dotted(base) or "" for base in node.bases] if isinstance(node, ast.ClassDef) else []
        if isinstance(node, ast.ClassDef) and any(name.rpartition(".")[2] == _BASE for name in names):
            return ModularPackage(path, node.name)
    raise BadInput(f"{file} defines no pipeline: no class is a {_BASE}", _HINT)
