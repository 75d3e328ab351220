"""The modules of a small model as their constructors build them, without torch: to evaluate their methods."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from omni_kit.toys.configs.language import toy_config
from omni_kit.toys.configs.sizes import AT_MOST, OPEN, SIZES
from omni_kit.upstream.construction import Interpreter, Module
from omni_kit.upstream.transformers.config_view import ConfigView
from omni_kit.upstream.transformers.configs import ModelConfig
from omni_kit.upstream.transformers.models import UpstreamModel
from omni_kit.upstream.transformers.traits import EXPERT_COUNTS, EXPERT_SIZES, expert_parameters, text_config


@lru_cache(maxsize=4)
def with_experts(model: UpstreamModel) -> UpstreamModel:
    """Return a model known by its name alone with its experts, where its config class leaves their number open, or 1.

    The layout of experts is that of their class, whatever their number: they get a toy's. A class that builds them only
    where a setting says so gets that setting, too.
    """
    defaults = text_config(model).cls.defaults
    left_open = [name for name in EXPERT_COUNTS if name in defaults and defaults[name].value in (None, 1)]
    if model.config.origin != "defaults" or not left_open:
        return model
    widths = [name for name in EXPERT_SIZES if name in defaults and defaults[name].value is None]
    sizes = {name: SIZES.get(name) or AT_MOST.get(name) for name in (*left_open, *widths)}
    switches = [name for name, default in defaults.items() if default.value is False]
    for switch in ({}, *({name: True} for name in switches)):
        found = _given(model, {**sizes, **switch})
        if expert_parameters(found.skeleton):
            return found
    return model


def _given(model: UpstreamModel, values: Mapping[str, Any]) -> UpstreamModel:
    config = replace(model.config, given={**model.config.given, **values}, origin="toy")
    return replace(model, config=config)


def small_config(model: UpstreamModel) -> dict[str, Any]:
    """Return a toy config of a model's type, which also has the sizes that its class leaves open."""
    defaults = model.config.cls.defaults.items()
    left_open = {name for name, one in defaults if name in OPEN and one.value is None}
    known = model.built_config.as_dict()
    complete = known | {name: None for name in left_open if name not in known}
    toy = toy_config(complete | {"architectures": [model.class_name]})
    return {name: value for name, value in toy.items() if name not in left_open or value is not None}


def small_model(model: UpstreamModel) -> Module:
    """Return a model with a small config of its own type; with its own config where no small one can be derived."""
    try:
        config = ModelConfig(model.config.cls, small_config(model), "toy")
    except (ArithmeticError, LookupError, TypeError, ValueError):
        config = model.config
    return Interpreter(model.source).build(model.class_name, [ConfigView(config)], {})


def parts(module: Module) -> Iterator[Module]:
    """Yield a module and all below it."""
    yield module
    for alternatives in module.attributes.values():
        for one in alternatives:
            if isinstance(one, Module):
                yield from parts(one)
