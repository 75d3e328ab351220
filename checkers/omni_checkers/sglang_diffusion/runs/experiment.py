"""Runs of pipelines in their own processes.

Rules never import torch: these processes do, and SGLang with stand-ins for what needs an accelerator.
"""

import copy
import importlib
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from omni_kit.isolation.failures import lacking_package

NOTHING: Mapping[str, Any] = {"error": "", "lacks": "", "wrong": []}
"""The facts of a pipeline of which nothing is known."""


def look_at(model: Mapping[str, Any]) -> dict[str, Any]:
    """Return the faults: [kind, class, method, message] each, of kinds "registered", "config" and "callback"."""
    from omni_kit.targets.sglang_diffusion.runtime.stand_ins import register_stand_ins

    facts: dict[str, Any] = {**NOTHING, "wrong": []}
    if not model["classes"]:
        return facts  # no pipeline
    os.environ.setdefault("SGLANG_DIFFUSION_PLATFORM_OVERRIDE", "cpu")
    register_stand_ins()
    try:
        if model["package"]:
            sys.path.insert(0, model["folder"])
            importlib.import_module(model["package"])
        classes = {name: _class(*place) for name, place in model["classes"].items()}
    except Exception as error:
        return {**facts, "error": _told(error), "lacks": lacking_package(error)}
    facts["wrong"] = [list(one) for one in _wrong(model, classes)]
    return facts


def _wrong(model: Mapping[str, Any], classes: Mapping[str, type]) -> Iterator[tuple[str, str, str, str]]:
    from omni_kit.targets.sglang_diffusion.runtime.callbacks import answers_of

    made: dict[str, Any] = {}
    for name in ("config", "sampling"):
        try:
            made[name] = classes[name]() if name in classes else None
        except Exception as error:
            yield "config", name, "", f"{classes[name].__name__} cannot be constructed: {_told(error)}"
    yield from (("registered", "pipeline", "", message) for message in _registered(model, classes, made.get("config")))
    if made.get("config") is not None:
        if model["values"]:
            yield from (("config", "arch", "", message) for message in _round_trip(made["config"], model["values"]))
        _as_loaded(made["config"], model)
        for method, message in answers_of(made["config"], made.get("sampling"), bool(model["values"] and model["vae"])):
            yield "callback", "config", method, message


def _registered(model: Mapping[str, Any], classes: Mapping[str, type], config: Any) -> Iterator[str]:
    """Yield wrong results of SGLang's look-ups by the names of the pipeline and of its denoiser."""
    from sglang.multimodal_gen.registry import get_pipeline_class
    from sglang.multimodal_gen.runtime.models.dits.base import BaseDiT
    from sglang.multimodal_gen.runtime.models.registry import ModelRegistry

    found = get_pipeline_class(model["name"])
    if found is not classes["pipeline"]:
        other = f"{found.__module__}.{found.__name__}" if found is not None else "nothing"
        yield f"SGLang finds {other} by the name {model['name']}"
    name = getattr(config, "transformer_class_override", None) or model["upstream"]
    if not name or config is None:
        return
    try:
        denoiser, _ = ModelRegistry.resolve_model_cls(name)
    except Exception as error:
        yield f"SGLang has no denoiser {name} and uses diffusers' own: {_told(error)}"
        return
    if not issubclass(denoiser, BaseDiT):
        yield f"the denoiser {name} is {denoiser.__module__}.{denoiser.__name__}, which is not a BaseDiT"


def _round_trip(config: Any, values: Mapping[str, Any]) -> Iterator[str]:
    """Yield values of a diffusers config that arch_config loses; sizes are larger than the usual ones if possible."""
    from dataclasses import fields

    larger = {name: 2 * value if type(value) is int and value > 1 else value for name, value in values.items()}
    for given in (larger, values):
        dit = copy.deepcopy(config.dit_config)
        try:
            dit.update_model_arch({"_class_name": "", **given})
        except Exception as error:
            failed = f"update_model_arch fails on diffusers' defaults: {_told(error)}"
            continue
        names = {one.name for one in fields(dit.arch_config)}
        for name, value in given.items():
            held = getattr(dit.arch_config, name, None)
            if name in names and value is not None and _plain(held) != _plain(value):
                yield f"update_model_arch makes '{name}' {held!r}, and config.json says {value!r}"
        return
    yield failed


def _as_loaded(config: Any, model: Mapping[str, Any]) -> None:
    """Tell a config what loaders would read in the config.json of its components."""
    for name, values in (("dit_config", model["values"]), ("vae_config", model["vae"])):
        with suppress(Exception):  # then its callbacks are asked without
            part = getattr(config, name)
            part.update_model_arch(dict(values))
            if hasattr(part, "post_init"):
                part.post_init()
    arch = getattr(getattr(config, "vae_config", None), "arch_config", None)
    factor = getattr(arch, "scaling_factor", None)
    if arch is not None and isinstance(factor, int | float) and not factor:
        arch.scaling_factor = 1.0  # SGLang's 0 stands for what a checkpoint says


def _plain(value: Any) -> Any:
    return [_plain(one) for one in value] if isinstance(value, (list, tuple)) else value


def _class(module: str, name: str) -> type:
    found: type = getattr(importlib.import_module(module), name)
    return found


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
