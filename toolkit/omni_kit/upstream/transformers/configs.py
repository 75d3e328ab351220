"""Values of a config and the defaults of its class, read without importing transformers."""

import ast
import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from omni_kit.errors import BadInput
from omni_kit.pysource.eval import UNKNOWN, OpenDomain, Unknown, Unsupported, evaluate
from omni_kit.pysource.library import Library
from omni_kit.pysource.reads import literal
from omni_kit.pysource.signatures import defaults, signature
from omni_kit.pysource.source import SourceFile, read_source

# Values that a layer, or a type of layers, has instead of those of the config.
BY_LAYER = "per_layer_config"
# Keys of the config of what sees: a tower, or a tokenizer of pictures.
SEEING = ("vision_config", "vq_config")
GRIDS = ("grid_thw", "grid_hw")  # how arguments end that hold the sizes of pictures in patches
# Of the config of a tower that takes spectrograms: its key, how many bins they have, and what positions there are for
# windows of one length, two frames each.
HEARING = ("audio_config", "encoder_config")
BINS = ("num_mel_bins", "input_feat_size", "input_dim", "input_size", "feature_size", "audio_embed_dim")
WHOLE = "max_source_positions"
# The table of a config's parts was renamed.
_SUB_CONFIGS = frozenset({"sub_configs", "sub_configs_defaults"})
_MODEL_TYPE = re.compile(r"""^\s+model_type(?:\s*:\s*[\w\[\]]+)?\s*=\s*["']([\w.+-]*)["']""", re.MULTILINE)


@dataclass(frozen=True)
class Value:
    """A config value with where it was read."""

    value: Any
    evidence: str


@dataclass(frozen=True)
class ConfigClass:
    """A configuration class of the library.

    Attributes:
        name: class name ("Qwen3MoeConfig").
        source: the file it stands in.
        defaults: attribute -> default, inherited ones included; only literals and arithmetic on them can be read.
        attribute_map: alias -> real attribute, as the class declares it.
        sub_configs: nested config -> its class as written, or the model_type that AutoConfig gets by default.
        class_variables: attributes that the class declares as its own, and no config has.
        optional_parts: nested configs that stay None unless one is given.
        annotations: attribute -> the type that the class declares, inherited ones included.
    """

    name: str
    model_type: str
    source: SourceFile
    defaults: Mapping[str, Value]
    attribute_map: Mapping[str, str]
    sub_configs: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, ast.expr] = field(default_factory=dict)
    class_variables: frozenset[str] = frozenset()
    optional_parts: frozenset[str] = frozenset()

    def spellings(self, name: str) -> list[str]:
        """Return an attribute's name, what it stands for, and what stands for it."""
        aliases = self.attribute_map
        same = [alias for alias, real in aliases.items() if real == name]
        return [name, *([aliases[name]] if name in aliases else []), *same]

    @property
    def folder(self) -> Path:
        """The directory of the model in the library."""
        return self.source.path.parent


@dataclass(frozen=True)
class ModelConfig:
    """One model's config: given values over the defaults of its class.

    Attributes:
        given: the values of config.json; empty when only a model_type was given.
        origin: what the given values are cited as ("config.json").
    """

    cls: ConfigClass
    given: Mapping[str, Any]
    origin: str

    @property
    def model_type(self) -> str:
        """Model type that the class declares."""
        return self.cls.model_type

    @property
    def architectures(self) -> list[str]:
        """The model classes that config.json names."""
        value = self.given.get("architectures")
        return [str(item) for item in value] if isinstance(value, list) else []

    def find(self, *names: str) -> Value | None:
        """Return the first of `names` that has a value other than None, aliases of the class resolved."""
        for name in names:
            for attribute in self.cls.spellings(name):
                if self.given.get(attribute) is not None:
                    return Value(self.given[attribute], f"{self.origin}: {attribute}")
            for attribute in self.cls.spellings(name):
                default = self.cls.defaults.get(attribute)
                if default is not None and default.value is not None:
                    return default
        return None

    def get(self, *names: str) -> Any:
        """Return the value alone, or None."""
        found = self.find(*names)
        return None if found is None else found.value

    def has(self, name: str) -> bool:
        """Return whether the attribute exists at all, be it None."""
        return any(a in self.given or a in self.cls.defaults for a in self.cls.spellings(name))


@cache
def model_types(library: Library) -> dict[str, list[Path]]:
    """Return every model_type that the library's configuration files name, with those files."""
    found: dict[str, list[Path]] = {}
    for file in sorted((library.root / "models").glob("*/configuration_*.py")):
        for model_type in dict.fromkeys(_MODEL_TYPE.findall(file.read_text(encoding="utf-8"))):
            found.setdefault(model_type, []).append(file)
    return found


@cache
def config_class(library: Library, model_type: str) -> ConfigClass:
    """Return the configuration class of `model_type`.

    Raises:
        BadInput: the library has no such model_type; the hint names close ones.
    """
    for file in model_types(library).get(model_type, []):
        source = read_source(library, file)
        for node in source.classes.values():
            attributes = _class_attributes(source, node)
            if (own := attributes.get("model_type")) and own.value == model_type:
                return _build(source, node, model_type, attributes)
    raise BadInput(
        f"unknown model_type '{model_type}' in {library.name} {library.version}", _suggest(library, model_type)
    )


def named_config_class(source: SourceFile, name: str) -> ConfigClass | None:
    """Return the configuration class that `name` means in a file: some have no model_type to be found by."""
    found = source.resolve_class(name)
    if found is None:
        return None
    attributes = _class_attributes(*found)
    own = attributes.get("model_type")
    return _build(*found, str(own.value) if own else "", attributes)


def part_class(cls: ConfigClass, name: str) -> ConfigClass | None:
    """Return the configuration class that a nested config is of by default; None if the class does not say."""
    written, library = cls.sub_configs.get(name, ""), cls.source.library
    return (
        config_class(library, written) if written in model_types(library) else named_config_class(cls.source, written)
    )


def _build(source: SourceFile, node: ast.ClassDef, model_type: str, attributes: dict[str, Value]) -> ConfigClass:
    mapping = attributes.get("attribute_map")
    subs: dict[str, str] = {}
    optional: set[str] = set()
    for item in node.body:
        if isinstance(item, ast.Assign) and _target(item) in _SUB_CONFIGS and isinstance(item.value, ast.Dict):
            for key, value in zip(item.value.keys, item.value.values, strict=True):
                if isinstance(key, ast.Constant):
                    subs[str(key.value)] = _written(value)
                    optional |= {str(key.value)} if _optional(value) else set()
    return ConfigClass(
        name=node.name,
        model_type=model_type,
        source=source,
        defaults=attributes,
        attribute_map=mapping.value if mapping and isinstance(mapping.value, dict) else {},
        sub_configs=subs,
        class_variables=_class_variables(source, node),
        optional_parts=frozenset(optional),
        annotations=_annotations(source, node),
    )


def _written(value: ast.expr) -> str:
    """Return the class of a nested config, or its model_type where a specification gives one to AutoConfig."""
    given = {k.arg: k.value for k in value.keywords} if isinstance(value, ast.Call) else {}
    model_type = given.get("model_type")
    if isinstance(model_type, ast.Constant) and isinstance(model_type.value, str):
        return model_type.value
    return ast.unparse(given.get("config_class", value))


def _optional(value: ast.expr) -> bool:
    """Return whether a specification leaves a nested config None unless one is given."""
    given = {k.arg: k.value for k in value.keywords} if isinstance(value, ast.Call) else {}
    return isinstance(optional := given.get("optional"), ast.Constant) and optional.value is True


def _class_attributes(source: SourceFile, node: ast.ClassDef, below: tuple[ast.ClassDef, ...] = ()) -> dict[str, Value]:
    """Literal class attributes and the literal defaults of __init__, a subclass's over its base's.

    Args:
        below: the classes that lead here, which are not gone through again.
    """
    found: dict[str, Value] = {}
    for base in reversed(source.bases(node)):
        resolved = source.resolve_class(base)
        if resolved is not None and resolved[1] not in (*below, node):
            found.update(_class_attributes(*resolved, (*below, node)))
    for item in node.body:
        name = _target(item)
        if name and isinstance(item, (ast.Assign, ast.AnnAssign)) and item.value is not None:
            _record(found, name, item.value, source)
        elif isinstance(item, ast.FunctionDef) and item.name == "__init__":
            for arg, default in defaults(signature(item)).items():
                _record(found, arg, default, source)
    return found


@cache
def _class_variables(source: SourceFile, node: ast.ClassDef) -> frozenset[str]:
    """Return the attributes that a class or a base of it annotates as ClassVar."""
    resolved = (source.resolve_class(base) for base in source.bases(node))
    inherited = (_class_variables(*found) for found in resolved if found is not None and found[1] is not node)
    own = (item for item in node.body if isinstance(item, ast.AnnAssign) and "ClassVar" in ast.unparse(item.annotation))
    return frozenset().union(*inherited, (name for item in own if (name := _target(item)) is not None))


@cache
def _annotations(source: SourceFile, node: ast.ClassDef) -> Mapping[str, ast.expr]:
    """Return the declared types of attributes, a subclass's over its base's; those of the class itself are left out."""
    found: dict[str, ast.expr] = {}
    for base in reversed(source.bases(node)):
        resolved = source.resolve_class(base)
        if resolved is not None and resolved[1] is not node:
            found.update(_annotations(*resolved))
    for item in node.body:
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
            found.pop(item.target.id, None)
            if "ClassVar" not in ast.unparse(item.annotation):
                found[item.target.id] = item.annotation
    return found


def _record(found: dict[str, Value], name: str, node: ast.expr, source: SourceFile) -> None:
    found.pop(name, None)
    value = _arithmetic(node) if isinstance(node, ast.BinOp) else literal(node)
    if not isinstance(value, Unknown):
        found[name] = Value(value, source.where(node))


def _arithmetic(node: ast.expr) -> Any:
    try:
        return evaluate(node, OpenDomain())
    except Unsupported:
        return UNKNOWN


def _target(item: ast.stmt) -> str | None:
    if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
        return item.target.id
    if isinstance(item, ast.Assign) and len(item.targets) == 1 and isinstance(item.targets[0], ast.Name):
        return item.targets[0].id
    return None


def _suggest(library: Library, model_type: str) -> str:
    close = difflib.get_close_matches(model_type, model_types(library), n=3)
    return (
        f"did you mean {', '.join(close)}?" if close else "pass a config.json of the model, or another --transformers"
    )
