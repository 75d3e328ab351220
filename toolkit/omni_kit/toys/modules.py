"""The modules of a small model as their constructors build them, without torch: to evaluate their methods."""

from collections.abc import Iterator
from typing import Any

from omni_kit.toys.configs.language import toy_config
from omni_kit.toys.configs.sizes import OPEN
from omni_kit.upstream.construction import Interpreter, Module
from omni_kit.upstream.transformers.config_view import ConfigView
from omni_kit.upstream.transformers.configs import ModelConfig
from omni_kit.upstream.transformers.models import UpstreamModel


def small_config(model: UpstreamModel) -> dict[str, Any]:
    """Return a toy config of a model's type, which also has the sizes that its class leaves open."""
    defaults = model.config.cls.defaults.items()
    left_open = {name for name, one in defaults if name in OPEN and one.value is None}
    known = model.built_config.as_dict()
    complete = known | {name: None for name in left_open if name not in known}
    toy = toy_config(complete | {"architectures": [model.class_name]})
    return {name: value for name, value in toy.items() if name not in left_open or value is not None}


def small_model(model: UpstreamModel) -> Module:
    """A model with a small config of its own type; with its own config where no small one can be derived."""
    try:
        config = ModelConfig(model.config.cls, small_config(model), "toy")
    except (ArithmeticError, LookupError, TypeError, ValueError):
        config = model.config
    return Interpreter(model.source).build(model.class_name, [ConfigView(config)], {})


def parts(module: Module) -> Iterator[Module]:
    """A module and all below it."""
    yield module
    for alternatives in module.attributes.values():
        for one in alternatives:
            if isinstance(one, Module):
                yield from parts(one)
