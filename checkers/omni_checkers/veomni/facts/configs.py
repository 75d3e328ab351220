"""Configs as symbolic execution sees them: attributes that exist, and those that do not."""

import ast
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache

from omni_checkers.engine.files import within
from omni_checkers.symbolic import Opaque, Record, Value
from omni_kit.pysource.classes import ClassRef
from omni_kit.pysource.source import SourceFile
from omni_kit.upstream.transformers.configs import ConfigClass
from omni_kit.upstream.transformers.defaults import sub_config

Values = Callable[[ConfigClass], Mapping[str, Value]]


class ConfigRecord(Record):
    """An instance of a config class: reading an attribute that the class does not define raises AttributeError.

    Args:
        values: what some attributes of a config class are; the others are not known.
    """

    def __init__(self, cls: ConfigClass, values: Values | None = None) -> None:
        super().__init__(cls.name, {})
        self.cls = cls
        self.values = values
        self._given = values(cls) if values is not None else {}
        self._defined = _defined(cls.source, cls.name)

    def attribute(self, name: str) -> Value:
        """Return the value of an attribute, through its aliases; a record for a config inside, Opaque where it is not
        known.

        Raises:
            KeyError: neither the config class nor its bases define it.
        """
        written = self.cls.sub_configs.get(name)
        if written is not None:
            inner = sub_config(self.cls, written)
            return ConfigRecord(inner, self.values) if inner is not None else Opaque(f"{self.name}.{name}")
        known = self.cls.defaults.keys() | self.cls.attribute_map.keys() | self._defined
        if name not in known:
            raise KeyError(name)
        real = self.cls.attribute_map.get(name, name)
        aliases = [alias for alias, target in self.cls.attribute_map.items() if target == real]
        given = next((self._given[key] for key in (name, real, *aliases) if key in self._given), None)
        return Opaque(f"{self.name}.{name}") if given is None else given


class ModelRecord(Record):
    """A model of which only the config is known."""

    def __init__(self, config: ConfigClass, values: Values | None = None) -> None:
        super().__init__("model", {"config": ConfigRecord(config, values)})

    def attribute(self, name: str) -> Value:
        """Return the config; Opaque for everything else, as a model may have any attribute."""
        return self.attributes.get(name, Opaque(f"model.{name}"))


def nested_text_configs(cls: ConfigClass) -> Iterator[ConfigClass]:
    """Yield the text configs inside a config, however deep."""
    for name, written in cls.sub_configs.items():
        inner = sub_config(cls, written)
        if inner is None or inner.name == cls.name:
            continue
        if name == "text_config":
            yield inner
        elif name == "thinker_config":
            yield from nested_text_configs(inner)


@lru_cache(maxsize=64)
def _defined(source: SourceFile, class_name: str) -> frozenset[str]:
    """Return methods, properties, annotated fields and `self.x = ...` of a class and its bases."""
    cls = ClassRef(source, source.classes[class_name])
    return frozenset(name for one in cls.mro if isinstance(one, ClassRef) for name in _own(one.node))


def _own(node: ast.ClassDef) -> Iterator[str]:
    yield from (item.name for item in within(node, ast.FunctionDef))
    yield from (item.target.id for item in within(node, ast.AnnAssign) if isinstance(item.target, ast.Name))
    yield from (item.attr for item in within(node, ast.Attribute) if isinstance(item.ctx, ast.Store))
