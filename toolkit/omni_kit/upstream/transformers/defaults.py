"""A model as its config class makes it when nothing is said: default values, nested configs included, a few layers."""

import ast
from typing import Any

from omni_kit.errors import BadInput
from omni_kit.pysource.source import SourceFile
from omni_kit.upstream.transformers.configs import ConfigClass, ModelConfig, config_class, model_types

_LAYERS = ("num_hidden_layers", "depth", "num_layers", "encoder_layers", "decoder_layers")
_FEW = 6
"""Layers that are built to learn which parameters a model has: enough for dense layers first and experts after them."""


def default_config(cls: ConfigClass) -> ModelConfig:
    """Return a config with the defaults of its class, nested configs included, and only a few layers."""
    return ModelConfig(cls, default_values(cls), "defaults")


def default_values(cls: ConfigClass, layers: int | None = _FEW) -> dict[str, Any]:
    """Return the config.json of a default config with at most so many layers; None leaves their number."""
    values: dict[str, Any] = {}
    for name in _LAYERS if layers is not None else ():
        default = cls.defaults.get(name)
        if default is not None and isinstance(default.value, int) and default.value > (layers or 0):
            values[name] = layers
    for name, written in cls.sub_configs.items():
        inner = sub_config(cls, written)
        if inner is not None and inner.name != cls.name and name not in cls.optional_parts:
            values[name] = {"model_type": inner.model_type, **default_values(inner, layers)}
    return values


def sub_config(cls: ConfigClass, written: str) -> ConfigClass | None:
    """Return the config class that an entry of `sub_configs` names; None for AutoConfig alone."""
    if written in model_types(cls.source.library):
        return config_class(cls.source.library, written)
    found = cls.source.resolve_class(written)
    return as_config(*found) if found is not None else None


def as_config(source: SourceFile, node: ast.ClassDef) -> ConfigClass | None:
    """Return a class as a config class of transformers, by the model_type that it states; None for any other class."""
    for item in node.body:
        value = item.value if isinstance(item, (ast.Assign, ast.AnnAssign)) else None
        targets = item.targets if isinstance(item, ast.Assign) else [getattr(item, "target", None)]
        named = any(isinstance(target, ast.Name) and target.id == "model_type" for target in targets)
        if named and isinstance(value, ast.Constant) and isinstance(value.value, str):
            try:
                return config_class(source.library, value.value)
            except BadInput:
                return None
    return None
