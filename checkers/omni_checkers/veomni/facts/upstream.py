"""Upstream's side of the classes of a model directory: configs, parameters, recipes."""

import ast
import re
from functools import cache
from pathlib import Path

from omni_kit.pysource.library import Library
from omni_kit.pysource.source import SourceFile, read_source
from omni_kit.upstream.transformers.autoclasses import find_class
from omni_kit.upstream.transformers.configs import ConfigClass, config_class, model_types
from omni_kit.upstream.transformers.defaults import as_config, default_config
from omni_kit.upstream.transformers.models import UpstreamModel
from omni_kit.upstream.transformers.speech import config_names

_CONFIG_CLASS = re.compile(r"^class (\w+)\(", re.MULTILINE)


def config_of(source: SourceFile, class_name: str) -> ConfigClass | None:
    """Return the config class of a model class: `config_class`, else the annotation of `config`; None if
    neither says.
    """
    for node in source.lineage(class_name):
        for name in config_names(node):
            found = source.resolve_class(name) or _from_the_top(source, name)
            config = as_config(*found) if found is not None else None
            if config is not None:
                return config
    return None


def _from_the_top(source: SourceFile, name: str) -> tuple[SourceFile, ast.ClassDef] | None:
    """Return a config class that is imported from the library itself, which loads its parts lazily."""
    imported = source.imports.get(name)
    if imported is None or imported.module != source.library.name or imported.name is None:
        return None
    file = _config_files(source.library).get(imported.name)
    return read_source(source.library, file).resolve_class(imported.name) if file is not None else None


@cache
def _config_files(library: Library) -> dict[str, Path]:
    """Config class -> its file."""
    files = sorted({file for files in model_types(library).values() for file in files})
    return {name: file for file in files for name in _CONFIG_CLASS.findall(file.read_text(encoding="utf-8"))}


def upstream_class(cls: ConfigClass, class_name: str) -> UpstreamModel | None:
    """transformers' own model class of this name, with a default config; None if it has none."""
    return _upstream_class(cls.source.library, cls.model_type, class_name)


@cache
def _upstream_class(library: Library, model_type: str, class_name: str) -> UpstreamModel | None:
    cls = config_class(library, model_type)
    found = find_class(cls, class_name)
    return UpstreamModel(library, default_config(cls), found[0], class_name) if found is not None else None
