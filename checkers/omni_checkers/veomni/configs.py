"""Configs as symbolic execution sees them: attributes that exist, and those that do not."""

import ast
from collections.abc import Iterator

from omni_checkers.symbolic.values import Opaque, Record, Value
from omni_checkers.veomni.upstream import sub_config
from omni_kit.upstream.configs import ConfigClass
from omni_kit.upstream.source import SourceFile


class ConfigRecord(Record):
    """An instance of a config class: reading what the class does not define is an AttributeError."""

    def __init__(self, cls: ConfigClass) -> None:
        super().__init__(cls.name, {})
        self.cls = cls
        self._defined = set(_defined(cls.source, cls.source.classes[cls.name]))

    def attribute(self, name: str) -> Value:
        written = self.cls.sub_configs.get(name)
        if written is not None:
            inner = sub_config(self.cls, written)
            return ConfigRecord(inner) if inner is not None else Opaque(f"{self.name}.{name}")
        known = self.cls.defaults.keys() | self.cls.attribute_map.keys() | self._defined
        if name not in known:
            raise KeyError(name)
        return Opaque(f"{self.name}.{name}")


class ModelRecord(Record):
    """A model of which only the config is known."""

    def __init__(self, config: ConfigClass) -> None:
        super().__init__("model", {"config": ConfigRecord(config)})

    def attribute(self, name: str) -> Value:
        return self.attributes.get(name, Opaque(f"model.{name}"))


def nested_text_configs(cls: ConfigClass) -> Iterator[ConfigClass]:
    """The text configs inside a config, however deep."""
    for name, written in cls.sub_configs.items():
        inner = sub_config(cls, written)
        if inner is None or inner.name == cls.name:
            continue
        if name == "text_config":
            yield inner
        elif name == "thinker_config":
            yield from nested_text_configs(inner)


def _defined(source: SourceFile, node: ast.ClassDef) -> Iterator[str]:
    """Methods, properties, annotated fields and `self.x = ...` of a class and its bases."""
    for item in ast.walk(node):
        if isinstance(item, ast.FunctionDef):
            yield item.name
        elif isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
            yield item.target.id
        elif isinstance(item, ast.Attribute) and isinstance(item.ctx, ast.Store):
            yield item.attr
    for base in source.bases(node):
        found = source.resolve_class(base)
        if found is not None and found[1] is not node:
            yield from _defined(*found)
