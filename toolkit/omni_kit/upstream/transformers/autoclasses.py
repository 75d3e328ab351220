"""Classes that the Auto classes of transformers build for a model_type, read from their tables."""

import ast
from collections.abc import Iterator, Mapping
from functools import cache

from omni_kit.files import files_matching
from omni_kit.pysource.library import Library
from omni_kit.pysource.source import SourceFile, dotted, read_source
from omni_kit.upstream.transformers.configs import ConfigClass, named_config_class

# The table of what the library calls a causal language model.
CAUSAL_TABLE = "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES"
# Those of what it calls models that answer in text to pictures, and to media of any kind.
IMAGE_TEXT_TABLE = "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES"
MULTIMODAL_TABLE = "MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES"


@cache
def auto_table(library: Library, table: str) -> Mapping[str, str]:
    """Return one table of `models/auto/modeling_auto.py` (as `CAUSAL_TABLE`): model_type -> class name.

    Where a table names several classes for a type, the first counts. An unknown table is empty.
    """
    file = library.root / "models" / "auto" / "modeling_auto.py"
    if not file.is_file():
        return {}
    return dict(_pairs(read_source(library, file), table))


def _pairs(source: SourceFile, table: str) -> Iterator[tuple[str, str]]:
    """Yield the pairs of an OrderedDict literal; a starred `list(OTHER.items())` is followed."""
    node = source.constants.get(table)
    if not isinstance(node, ast.Call) or dotted(node.func) != "OrderedDict" or not node.args:
        return
    for item in getattr(node.args[0], "elts", []):
        if isinstance(item, ast.Starred):
            names = [n.id for n in ast.walk(item.value) if isinstance(n, ast.Name) and n.id.isupper()]
            for name in names:
                yield from _pairs(source, name)
        else:
            key, value = ast.literal_eval(item)
            yield key, value if isinstance(value, str) else value[0]


@cache
def auto_model_table(library: Library, name: str) -> str | None:
    """Return the table behind an Auto class ("AutoModelForCausalLM"); None for any other class."""
    file = library.root / "models" / "auto" / "modeling_auto.py"
    node = read_source(library, file).classes.get(name) if name.startswith("Auto") and file.is_file() else None
    for item in node.body if node is not None else []:
        if isinstance(item, ast.Assign) and ast.unparse(item.targets[0]) == "_model_mapping":
            return f"{ast.unparse(item.value)}_NAMES"
    return None


def auto_class(library: Library, table: str, cls: ConfigClass) -> tuple[SourceFile, ast.ClassDef] | None:
    """Return the class that `table` names for this config's model_type, with the file that defines it."""
    name = auto_table(library, table).get(cls.model_type)
    return (find_class(cls, name) or class_anywhere(library, name)) if name else None


def find_class(cls: ConfigClass, name: str) -> tuple[SourceFile, ast.ClassDef] | None:
    """Return the class `name` in the modeling files next to a config class."""
    for file in files_matching(cls.folder, "modeling_*.py"):
        source = read_source(cls.source.library, file)
        if name in source.classes:
            return source, source.classes[name]
    return None


@cache
def class_anywhere(library: Library, name: str) -> tuple[SourceFile, ast.ClassDef] | None:
    """Return the class `name` in any modeling file: a model_type may use the classes of another one."""
    for file in sorted((library.root / "models").glob("*/modeling_*.py")):
        if f"class {name}(" in file.read_text(encoding="utf-8"):
            source = read_source(library, file)
            return source, source.classes[name]
    return None


@cache
def config_of(library: Library, class_name: str) -> ConfigClass | None:
    """The configuration class of a model class, wherever the library has it: the only way where model_type is empty."""
    found = class_anywhere(library, class_name)
    name = _config_name(found[0], class_name) if found is not None else None
    return named_config_class(found[0], name) if found is not None and name else None


def _config_name(source: SourceFile, class_name: str) -> str | None:
    """`config_class`, or the annotation of the constructor's `config`."""
    for item in source.classes[class_name].body:
        if isinstance(item, ast.Assign) and ast.unparse(item.targets[0]) == "config_class":
            return dotted(item.value)
    init = source.method(class_name, "__init__")
    annotations = [arg.annotation for arg in (init.args.args if init else []) if arg.arg == "config"]
    return dotted(annotations[0]) if annotations and annotations[0] else None
