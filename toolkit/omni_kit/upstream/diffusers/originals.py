"""Checkpoints in the layout of a model's original authors, told as diffusers' own loader of single files tells them."""

import ast
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import takewhile
from typing import Any

from omni_kit.pysource.library import Library
from omni_kit.pysource.reads import literal
from omni_kit.pysource.source import SourceFile, dotted, read_source
from omni_kit.upstream.construction import Interpreter, Tensor
from omni_kit.upstream.diffusers.classes import find_class
from omni_kit.upstream.diffusers.models import ComponentModel

# Where diffusers keeps its tables, and what they are called there.
_KEYS_FILE, _CLASSES_FILE = "loaders/single_file_utils.py", "loaders/single_file_model.py"
_KEYS, _REPOSITORIES, _TELL = "CHECKPOINT_KEY_NAMES", "DIFFUSERS_DEFAULT_PIPELINE_PATHS", "infer_diffusers_model_type"
_CLASSES, _CONVERTER = "SINGLE_FILE_LOADABLE_CLASSES", "checkpoint_mapping_fn"
_NUMBER = re.compile(r"(?<=\.)\d+(?=\.|$)")
_SHORTEST = 3  # letters that the names of a format and of its class begin with in common

Shapes = Mapping[str, tuple[int, ...] | None]


@dataclass(frozen=True)
class Original:
    """The layout that a checkpoint is in.

    Attributes:
        name: diffusers' name for it ("flux-dev").
        class_name: the class that loads it by `from_single_file`; empty if only whole pipelines do.
        converter: the function of diffusers that renames its keys; empty without a class.
        repository: whose config diffusers takes for it.
    """

    name: str
    class_name: str
    converter: str
    repository: str


def original_layout(library: Library, tensors: Shapes, own: ComponentModel | None = None) -> Original | None:
    """Return the original authors' layout that the names of tensors tell; None if they are in diffusers' or unknown.

    Args:
        tensors: every key of the checkpoint with its shape; None for a shape that is not known.
        own: the model that its config says it is of.
    """
    if own is not None and _is_of(own, tensors):
        return None
    source = _file(library, _KEYS_FILE)
    name = _told(source, tensors) if source is not None else ""
    if source is None or not name:
        return None
    able = converters(library)
    class_name = own.class_name if own is not None and own.class_name in able else _loads(name, list(able))
    cls = find_class(library, class_name) if class_name else None
    if cls is not None and _is_of(ComponentModel(library, cls), tensors):
        return None
    paths = _table(source, _REPOSITORIES).get(name, {})
    return Original(
        name, class_name, able.get(class_name, ("", ""))[0], str(paths.get("pretrained_model_name_or_path", ""))
    )


def share_of(model: ComponentModel, names: Iterable[str]) -> float:
    """Return the share of names that a class's own parameters have, however many layers it has; from 0 to 1."""
    own = {parameter.pattern for parameter in model.skeleton.parameters}
    patterns = {_NUMBER.sub("*", name) for name in names}
    return len(patterns & own) / len(patterns) if patterns else 0.0


def _is_of(model: ComponentModel, tensors: Shapes) -> bool:
    return share_of(model, tensors) > 0.5


def _told(source: SourceFile, tensors: Shapes) -> str:
    """Return the result of diffusers' own function; empty if it only falls back, without any of its key names.

    Where that hangs on shapes that are not known, it is the table's own name of the keys.
    """
    rows = {name: row if isinstance(row, list) else [row] for name, row in _table(source, _KEYS).items()}
    named = next((str(name) for name, row in rows.items() if tensors.keys() & set(row)), "")
    if not named:
        return ""
    told = Interpreter(source).call(_TELL, {"checkpoint": {key: Tensor(shape) for key, shape in tensors.items()}})
    fallback = Interpreter(source).call(_TELL, {"checkpoint": {}})
    if told == fallback and not tensors.keys() & set(rows.get(str(fallback), [])):
        return ""
    return told if isinstance(told, str) and None not in tensors.values() else named


def _loads(name: str, classes: Sequence[str]) -> str:
    """Return the class that a format is of, by the words of its name; empty if no class is called like it."""
    words = [word.lower() for word in re.split(r"[-_.]", name)]
    joined = "".join(words)
    able = [one for one in classes if one.lower().startswith(joined[:_SHORTEST])]
    ranked = sorted(
        able,
        key=lambda one: (
            -sum(len(word) for word in words if word in one.lower()),
            -_in_common(joined, one.lower()),
            len(one),
        ),
    )
    return ranked[0] if ranked else ""


def _in_common(first: str, second: str) -> int:
    """With how many letters two words begin alike."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=False)))


@cache
def converters(library: Library) -> dict[str, tuple[str, str]]:
    """Return, of each class, diffusers' function that renames the keys of its originals, and where that is said.

    Classes whose originals have its own names are not among them.
    """
    source = _file(library, _CLASSES_FILE)
    table = source.constants.get(_CLASSES) if source is not None else None
    found: dict[str, tuple[str, str]] = {}
    for key, value in zip(table.keys, table.values, strict=True) if isinstance(table, ast.Dict) else ():
        inner = zip(value.keys, value.values, strict=True) if isinstance(value, ast.Dict) else ()
        function = next((item for name, item in inner if name is not None and _text(name) == _CONVERTER), None)
        if source is not None and key is not None and function is not None and (name := dotted(function)):
            found[_text(key)] = name, source.where(function)
    return found


def converter_of(library: Library, class_name: str) -> tuple[str, str]:
    """Return the function of diffusers that renames the keys of a class's original checkpoints, and where; empty
    without.
    """
    return converters(library).get(class_name, ("", ""))


def _file(library: Library, place: str) -> SourceFile | None:
    path = library.root / place
    return read_source(library, path) if path.is_file() else None


def _table(source: SourceFile, name: str) -> dict[str, Any]:
    """Return a table of literals; empty if it is not there, or is none."""
    value = literal(source.constants.get(name))
    return value if isinstance(value, dict) else {}


def _text(node: ast.expr) -> str:
    return str(node.value) if isinstance(node, ast.Constant) else ""
