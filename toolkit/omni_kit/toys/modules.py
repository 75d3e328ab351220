"""The modules of a small model as their constructors build them, without torch: to evaluate their methods."""

from collections.abc import Iterator

from omni_kit.toys.configs.language import toy_config
from omni_kit.upstream.construction import Interpreter, Module
from omni_kit.upstream.transformers.config_view import ConfigView
from omni_kit.upstream.transformers.configs import ModelConfig
from omni_kit.upstream.transformers.models import UpstreamModel


def small_model(model: UpstreamModel) -> Module:
    """A model with a small config of its own type; with its own config where no small one can be derived."""
    try:
        config = ModelConfig(model.config.cls, toy_config(model.built_config.as_dict()), "toy")
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
