"""Features of VeOmni's own integration of a model_type: a plugin that replaces it keeps each or reports its loss."""

import ast
from collections.abc import Iterator, Set
from functools import cache
from pathlib import Path

from omni_kit.files import files_matching
from omni_kit.pysource.nodes import calls, within
from omni_kit.pysource.source import parse_file
from omni_kit.targets.veomni.checkout import MODELS, registrants, shipped_package
from omni_kit.targets.veomni.model_dir import ModelDir

DEVICES = "code for NPUs"
_METHOD = "get_"
# What VeOmni asks a model for, by the endings of its names; transformers' own `get_` methods end otherwise.
_OF_VEOMNI = ("_plan", "_func", "_infos", "_precision")


def lost_by(model: ModelDir) -> list[str]:
    """Return the features of VeOmni's own integrations of a plugin's model_types that the plugin lacks."""
    if model.style == "in-tree":
        return []
    own = {feature for key in model.registered for feature in shipped_features(key)}
    return sorted(own - features_of(model.path))


@cache
def shipped_features(key: str) -> Set[str]:
    """Return the features of the installed VeOmni for a model_type; empty if it does not register it."""
    package = shipped_package()
    models = package.parent / MODELS if package is not None else None
    found = registrants(models, key) if models is not None and models.is_dir() else []
    return frozenset(feature for directory in found for feature in features_of(directory))


def features_of(directory: Path) -> Set[str]:
    """Return the features of an integration, each in the words of the report."""
    generated = files_matching(directory, "generated/*_gpu.py")
    found = set(_hooks(directory / "__init__.py"))
    for file in generated:
        found |= set(_of_code(file))
    return found | ({DEVICES} if files_matching(directory, "generated/*_npu.py") else set())


def slot(operation: str) -> str:
    """Return the name of an operation's slot in reports."""
    return f"a kernel slot for {operation}"


def _tree(file: Path) -> ast.Module:
    try:
        return parse_file(file)[1]
    except (OSError, SyntaxError, UnicodeDecodeError):
        return ast.Module(body=[], type_ignores=[])


def _hooks(file: Path) -> Iterator[str]:
    """Yield the attributes that VeOmni looks up and that a package gives its classes."""
    for node in within(_tree(file), ast.Assign):
        yield from (one.attr for one in node.targets if isinstance(one, ast.Attribute) and one.attr.startswith("_c"))


def _of_code(file: Path) -> Iterator[str]:
    """Yield the kernel slots of a generated file, and the methods of its classes that are there for VeOmni."""
    tree = _tree(file)
    for call in calls(tree, "OpSlot"):
        first = call.args[0] if call.args else None
        if isinstance(first, ast.Constant):
            yield slot(str(first.value))
    for node in within(tree, ast.ClassDef):
        names = (item.name for item in node.body if isinstance(item, ast.FunctionDef))
        yield from (name for name in names if name.startswith(_METHOD) and name.endswith(_OF_VEOMNI))
