"""One upstream model: config, the modeling source of its class, its skeleton and its recipe."""

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

from omni_kit.errors import BadInput
from omni_kit.pysource.eval import UNKNOWN
from omni_kit.pysource.library import Library
from omni_kit.pysource.source import SourceFile
from omni_kit.upstream.skeleton import Skeleton, build_skeleton
from omni_kit.upstream.transformers.autoclasses import (
    CAUSAL_TABLE,
    IMAGE_TEXT_TABLE,
    MULTIMODAL_TABLE,
    auto_table,
    class_anywhere,
    find_class,
)
from omni_kit.upstream.transformers.config_view import ConfigView
from omni_kit.upstream.transformers.configs import ModelConfig, Value
from omni_kit.upstream.transformers.recipes.book import Recipe
from omni_kit.upstream.transformers.recipes.reading import recipe_book

_TABLES = (
    CAUSAL_TABLE,
    IMAGE_TEXT_TABLE,
    MULTIMODAL_TABLE,
    "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES",
    "MODEL_MAPPING_NAMES",
)


@dataclass(frozen=True, eq=False)
class UpstreamModel:
    """Class of transformers for one config; equal to itself alone, so that what is read of it can be kept.

    Attributes:
        class_name: the class that the checkpoint's architecture names, else the one that its model_type leads to.
    """

    library: Library
    config: ModelConfig
    source: SourceFile
    class_name: str

    @property
    def name(self) -> str:
        """Identifier of the model: its model_type."""
        return self.config.model_type

    @property
    def given(self) -> Mapping[str, Any]:
        """Values of its config, without the defaults of its class."""
        return self.config.given

    @cached_property
    def built_config(self) -> ConfigView:
        """The config as its class builds it, `__post_init__` included."""
        return ConfigView(self.config)

    def find(self, *names: str) -> Value | None:
        """Return the first of `names` that has a value: given, by default, or filled in when the config is built."""
        found = self.config.find(*names)
        if found is not None:
            return found
        for name in names:
            value = self.built_config.get(name) if self.built_config.has(name) else None
            if value is not None and value is not UNKNOWN:
                return Value(value, self.filled_in_at(name))
        return None

    def filled_in_at(self, *names: str) -> str:
        """Return where the config class sets the first of these that it sets when a config is built: file:line."""
        source = self.config.cls.source
        node = source.classes[self.config.cls.name]
        methods = [item for item in node.body if isinstance(item, ast.FunctionDef)]
        for name in names:
            for method in methods:
                for one in ast.walk(method):
                    text = isinstance(one, ast.Constant) and one.value == name
                    stored = isinstance(one, ast.Attribute) and one.attr == name and isinstance(one.ctx, ast.Store)
                    if text or stored or (method.name == name and one is method):
                        return source.where(one)
        return source.where(next((one for one in methods if one.name == "__post_init__"), node))

    @cached_property
    def skeleton(self) -> Skeleton:
        """Names and shapes of the class's parameters, with this config."""
        return build_skeleton(self.source, self.class_name, ConfigView(self.config))

    @cached_property
    def recipe(self) -> Recipe | None:
        """Recipe that transformers declares for loading this model; None if there is none."""
        root = ("", self.class_name, self.config.model_type)
        return recipe_book(self.library).resolve(self.skeleton.submodels or [root], self.skeleton.base_prefix)

    @property
    def heads(self) -> list[str]:
        """The model classes of the file that can be registered: X...ForY and XModel, in file order."""
        exported = self.source.constants.get("__all__")
        names = [item.value for item in getattr(exported, "elts", [])]
        return [name for name in names if not name.endswith("PreTrainedModel") and name in self.source.classes]


def upstream_model(library: Library, config: ModelConfig) -> UpstreamModel:
    """Find the modeling class of a config.

    Raises:
        BadInput: the library has no modeling class for it.
    """
    named = _named_by_tables(library, config)
    beside = ((name, find_class(config.cls, name)) for name in (*config.architectures, *named))
    elsewhere = ((name, class_anywhere(library, name)) for name in named)
    for name, found in chain(beside, elsewhere):
        if found is not None:
            return UpstreamModel(library, config, found[0], name)
    raise BadInput(f"{library.name} {library.version} has no modeling class for model_type '{config.model_type}'")


def _named_by_tables(library: Library, config: ModelConfig) -> list[str]:
    """Return the classes of a model_type; of one that sees, that which takes pictures comes first."""
    sees = config.has("vision_config")
    order = sorted(_TABLES, key=lambda table: table != IMAGE_TEXT_TABLE) if sees else _TABLES
    tables = (auto_table(library, table) for table in order)
    return [table[config.model_type] for table in tables if config.model_type in table]
