"""A config as the constructors of its models see it, read from its class and from config.json."""

import ast
import copy
import re
from collections.abc import Mapping
from typing import Any

from omni_kit.pysource.classes import ClassRef
from omni_kit.pysource.eval import UNKNOWN
from omni_kit.pysource.source import SourceFile, dotted, read_source
from omni_kit.upstream.construction.domain import Place
from omni_kit.upstream.construction.interpreter import returned_by
from omni_kit.upstream.construction.values import Config
from omni_kit.upstream.transformers.autoclasses import auto_class, auto_model_table
from omni_kit.upstream.transformers.configs import (
    BY_LAYER,
    ConfigClass,
    ModelConfig,
    config_class,
    model_types,
    named_config_class,
    part_class,
)

# class attributes of configs that are not part of config.json
_NOT_SAVED = {
    "attribute_map", "sub_configs", "keys_to_ignore_at_inference", "default_theta", "default_rope_type",
    "base_config_key",
    "ignore_keys_at_rope_validation", "has_no_defaults_at_init", "is_composition",
}  # fmt: skip
# what every config fills in when it is built, and the method of the base class that does it
_ROPE, _FILLS_ROPE = "rope_parameters", "convert_rope_params_to_dict"


class ConfigView(Config):
    """A config as a constructor sees it: given values over defaults, after the class's own `__post_init__`.

    Nested config dicts are views too.
    """

    def __init__(self, config: ModelConfig) -> None:
        self.config = config
        self._values = {self._real(name): default.value for name, default in config.cls.defaults.items()}
        self._values |= {self._real(name): value for name, value in config.given.items()}
        self._values.setdefault("_attn_implementation", "eager")
        self._properties = _properties(config.cls)
        self._parts: dict[str, Any] = {}
        self._built = False
        self._post_init()
        self._built = True

    @property
    def given(self) -> Mapping[str, Any]:
        """See `Config`."""
        return self.config.given

    @property
    def model_type(self) -> str:
        """See `Config`."""
        return self.config.model_type

    def model_class(self, source: SourceFile, name: str) -> ClassRef | None:
        """See `Config`; tables of the library tell what an Auto class stands for."""
        table = auto_model_table(source.library, name)
        found = auto_class(source.library, table, self.config.cls) if table else source.resolve_class(name)
        return ClassRef(*found) if found else None

    def get(self, name: str) -> Any:
        """See `Config`; nested configs are views, properties are run."""
        name = self._real(name)
        if name == BY_LAYER and name in self._values:
            return LayerConfigs(self, self._values[name])
        if name == _ROPE and name in self._values and self._built:
            return self._rope()
        if name in self._values:
            value = self._values[name]
            return self._part(name, value) if isinstance(value, Mapping) and name.endswith("config") else value
        if name in self._properties:
            return self._run_property(self._properties[name])
        return UNKNOWN

    def has(self, name: str) -> bool:
        """See `Config`."""
        return self._real(name) in self._values or name in self._properties

    def as_dict(self) -> dict[str, Any]:
        """Return the config as plain values, as `to_dict()` of the built config gives them.

        Left out: values that could not be read, None by default, and what only the base class of all configs says.
        """
        return {
            name: part.as_dict() if isinstance(part := self._part_of(name, value), ConfigView) else value
            for name, value in self._values.items()
            if _known(value) and name not in _NOT_SAVED and not name.startswith(("_", "base_model_"))
            if name not in self.config.cls.class_variables
            if name in self.config.given or (value is not None and not self._of_base_class(name, value))
        } | {"model_type": self.config.model_type}

    def _of_base_class(self, name: str, value: Any) -> bool:
        default = self.config.cls.defaults.get(name)
        return default is not None and "configuration_utils.py" in default.evidence and value == default.value

    def set(self, name: str, value: Any, certain: bool) -> None:
        """See `Config`."""
        name = self._real(name)
        if isinstance(value, ConfigView):
            if certain:
                self._parts[name] = value
                self._values[name] = {**value.config.given, "model_type": value.model_type}
            return
        if value is UNKNOWN and isinstance(self._values.get(name), Mapping):
            return  # what normalises a part that was given leaves it what it is
        if certain or self._values.get(name) == value:
            self._values[name] = value
        elif name not in self.config.given:
            self._values[name] = UNKNOWN

    def make(self, cls: ClassRef, values: dict[str, Any]) -> "ConfigView | None":
        """See `Config`."""
        made = named_config_class(cls.source, cls.node.name) if cls.node.name.endswith("Config") else None
        return ConfigView(ModelConfig(made, values, self.config.origin)) if made is not None else None

    def of_type(self, model_type: str, values: dict[str, Any]) -> "ConfigView | None":
        """See `Config`."""
        library = self.config.cls.source.library
        if model_type not in model_types(library):
            return None
        return ConfigView(ModelConfig(config_class(library, model_type), values, self.config.origin))

    def of_class(self, path: str, values: dict[str, Any]) -> "ConfigView | None":
        """See `Config`: a package of the library imports its configs from the files in its directory."""
        library, (package, _, name) = self.config.cls.source.library, path.rpartition(".")
        folder = library.root.joinpath(*package.split(".")[1:])
        for file in sorted(folder.glob("configuration_*.py")) if folder.is_dir() else ():
            source = read_source(library, file)
            made = named_config_class(source, name) if name in source.classes else None
            if made is not None:
                return ConfigView(ModelConfig(made, values, self.config.origin))
        return None

    def copy(self) -> "ConfigView":
        """See `Config`."""
        copied = copy.copy(self)
        copied._values = copy.deepcopy(self._values)
        copied._parts = {name: part.copy() for name, part in self._parts.items() if isinstance(part, ConfigView)}
        return copied

    def _part(self, name: str, value: Mapping[str, Any]) -> Any:
        if name not in self._parts:
            self._parts[name] = _nested(self.config, name, value)
        return self._parts[name]

    def _part_of(self, name: str, value: Any) -> Any:
        return self._part(name, value) if isinstance(value, Mapping) and name.endswith("config") else None

    def _real(self, name: str) -> str:
        return self.config.cls.attribute_map.get(name, name)

    def _post_init(self) -> None:
        cls = self.config.cls
        node = cls.source.classes.get(cls.name)
        post_init = cls.source.method(cls.name, "__post_init__")
        if node is not None and post_init is not None:
            kwargs = {name: value for name, value in self.config.given.items() if name not in cls.defaults}
            returned_by(Place(ClassRef(cls.source, node), self), post_init, [self], kwargs)
            for name, value in kwargs.items():  # the base class keeps what is left over
                self._values.setdefault(name, value)

    def _rope(self) -> Any:
        """Return the rotary settings as the library's base class completes them; as they are where it does not, or
        unread.

        They are no part of `as_dict`: only the base class says them.
        """
        cls = self.config.cls
        found = ClassRef(cls.source, cls.source.classes[cls.name]).method(_FILLS_ROPE)
        if found is not None and self._values[_ROPE] is not UNKNOWN:
            filled, given = _Filled(self), copy.deepcopy(dict(self.config.given))
            kwargs = {name: value for name, value in given.items() if name not in cls.defaults}
            returned_by(Place(found[0], filled), found[1], [filled], kwargs)
            if filled.rope:
                return filled.rope
        return self._values[_ROPE]

    def _run_property(self, node: ast.FunctionDef) -> Any:
        source = self.config.cls.source
        return returned_by(Place(ClassRef(source, source.classes[self.config.cls.name]), self), node, [self], {})


class _Filled(ConfigView):
    """A config while the library's base class fills in its rotary settings by methods of its own."""

    def __init__(self, view: ConfigView) -> None:
        vars(self).update(vars(view.copy()), _built=False)

    @property
    def rope(self) -> Any:
        """The settings; None if one of them could not be read."""
        found = self._values[_ROPE]
        return found if isinstance(found, Mapping) and UNKNOWN not in found.values() else None

    def method(self, name: str) -> tuple[ClassRef, ast.FunctionDef] | None:
        """See `Config`."""
        source = self.config.cls.source
        return ClassRef(source, source.classes[self.config.cls.name]).method(name)


class LayerConfigs:
    """Values of `config.per_layer_config` for a layer or a type of layers: the config with their values substituted."""

    def __init__(self, view: ConfigView, own: Mapping[Any, Mapping[str, Any]]) -> None:
        self.view = view
        self.own = {int(key) if str(key).isdigit() else key: values for key, values in own.items()}

    def __getitem__(self, layer: int | str) -> ConfigView:
        types = self.view.get("layer_types")
        if isinstance(layer, str) and layer not in self.own and isinstance(types, (list, tuple)) and layer in types:
            layer = types.index(layer)
        copied = self.view.copy()
        for name, value in self.own.get(layer, {}).items():
            copied.set(name, value, certain=True)
        return copied


def _known(value: Any) -> bool:
    return value is not UNKNOWN and not (isinstance(value, (list, tuple)) and any(item is UNKNOWN for item in value))


def _properties(cls: ConfigClass) -> dict[str, ast.FunctionDef]:
    node = cls.source.classes.get(cls.name)
    return {
        item.name: item
        for item in (node.body if node is not None else [])
        if isinstance(item, ast.FunctionDef) and any(dotted(d) == "property" for d in item.decorator_list)
    }


def _usual_type(cls: ConfigClass, name: str) -> str:
    """Return the model_type that a class gives a part that names none; empty if it says none."""
    node = cls.source.classes.get(cls.name)
    text = ast.unparse(node) if node is not None else ""
    found = re.search(rf"self\.{name}\.get\('model_type', '([\w.-]+)'\)", text)
    return found.group(1) if found is not None else ""


def _nested(parent: ModelConfig, name: str, value: Mapping[str, Any]) -> Any:
    model_type, library = value.get("model_type"), parent.cls.source.library
    if isinstance(model_type, str) and model_type:
        # a part of a type that the library does not have is like any other that cannot be read
        cls = config_class(library, model_type) if model_type in model_types(library) else None
    else:
        usual = _usual_type(parent.cls, name)
        cls = config_class(library, usual) if usual in model_types(library) else part_class(parent.cls, name)
    return UNKNOWN if cls is None else ConfigView(ModelConfig(cls, dict(value), f"{parent.origin}: {name}"))
