"""Recognises the directory of one integration: a package of its own, or a pipeline's folder in a checkout."""

import ast
import re
from dataclasses import dataclass
from pathlib import Path

from omni_kit.errors import BadInput, reason
from omni_kit.files import files_matching
from omni_kit.pysource.source import dotted, parse_file

_TOY, _TOY_IN_TREE = "toy_config.json", ".omni-kit.toy.json"
_SAMPLER, _SAMPLER_IN_TREE = "authors_sampling.py", ".omni-kit.sampling.py"
_MIXIN = "ModelMixin"
_PIPELINES = "pipelines"
_PACKAGE = "diffusers"
_MENTIONED = re.compile(rf"\b{_MIXIN}\b")
_HINT = "pass a package with transformer_<name>.py, in which a class is a ModelMixin"


@dataclass(frozen=True)
class ModelDir:
    """The files of one integration.

    Attributes:
        path: its own directory, absolute.
        in_tree: it is in diffusers' own package.
        model_file: the file of the model.
        class_name: the model's class.
        sys_path: the folder that its imports start from.
    """

    path: Path
    in_tree: bool
    model_file: Path
    class_name: str
    sys_path: Path

    @property
    def name(self) -> str:
        """Name of the integration."""
        return self.path.name

    @property
    def toy(self) -> Path:
        """Path of the file that names the small model and the class to compare it with."""
        return self.path / toy_name(self.in_tree)

    @property
    def sampler(self) -> Path:
        """Path of the file that defines how its authors sample."""
        return self.path / sampler_name(self.in_tree)


def find_model_dir(path: Path) -> ModelDir:
    """Return the integration whose own directory this is.

    Raises:
        BadInput: it is none; what is missing.
    """
    path = path.resolve()
    in_tree = path.parent.name == _PIPELINES and path.parent.parent.name == _PACKAGE
    folder = path.parent.parent / "models" / "transformers" if in_tree else path
    file = folder / f"transformer_{path.name}.py"
    files = [file] if file.is_file() else [] if in_tree else files_matching(folder, "transformer_*.py")
    if not (path / "__init__.py").is_file() or not files:
        raise BadInput(f"{path} contains no model of {_PACKAGE}", _HINT)
    found = [(one, name) for one in files for name in model_classes(one)]
    if not found:
        raise BadInput(f"{files[0]} defines no model: no class is a {_MIXIN}", _HINT)
    above = path.parent.parent.parent if in_tree else path.parent
    return ModelDir(path, in_tree, *found[0], above)


def sampler_name(in_tree: bool) -> str:
    """Return the name of the file that defines how the authors sample."""
    return _SAMPLER_IN_TREE if in_tree else _SAMPLER


def toy_name(in_tree: bool) -> str:
    """Return the name of that file: in the library's own tree it is a test file, like its neighbours."""
    return _TOY_IN_TREE if in_tree else _TOY


def model_classes(file: Path) -> list[str]:
    """Return the classes of a file that are models of diffusers; those that others are made of come last.

    Raises:
        BadInput: it cannot be read.
    """
    try:
        text, tree = parse_file(file)
    except (OSError, SyntaxError, UnicodeDecodeError) as error:
        raise BadInput(f"cannot read {file}: {reason(error)}") from error
    if not _MENTIONED.search(text):
        return []
    classes = (node for node in tree.body if isinstance(node, ast.ClassDef))
    found = [one.name for one in classes if _MIXIN in {(dotted(base) or "").rpartition(".")[2] for base in one.bases}]
    called = {dotted(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)} if len(found) > 1 else set()
    return sorted(found, key=called.__contains__)
