"""Runs of models in their own processes: rules never import torch, these do."""

import json
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from omni_kit.documents import read_mapping
from omni_kit.errors import in_short
from omni_kit.isolation.failures import lacking_package

NOTHING: Mapping[str, Any] = {"error": "", "lacks": "", "returned": [], "built": {}, "hooks": [], "denoiser": []}
"""The facts of a model of which nothing is known."""


def import_facts(model: Mapping[str, Any]) -> dict[str, Any]:
    """Return what importing the model, calling its register functions and building its classes on meta gave."""
    from omni_kit.targets.veomni.runtime.side import VeOmniBuilder

    facts: dict[str, Any] = {**NOTHING, "returned": [], "built": {}, "hooks": []}
    try:
        if model.get("sides"):
            from omni_checkers.veomni.runs.denoiser import look_at

            facts["denoiser"] = look_at(model["sides"], lambda: _open(model))
            return facts
        VeOmniBuilder().open(model)
        from veomni.models.loader import MODELING_REGISTRY

        for key, architectures in model["architectures"].items():
            for architecture in [*architectures, None]:
                _call(MODELING_REGISTRY[key], key, architecture, model, facts)
    except Exception as error:
        facts["error"], facts["lacks"] = in_short(error, 300), lacking_package(error)
    return facts


def _open(model: Mapping[str, Any]) -> None:
    from omni_kit.targets.veomni.runtime.side import VeOmniBuilder

    VeOmniBuilder().open(model)


def _call(function: Any, key: str, architecture: str | None, model: Mapping[str, Any], facts: dict[str, Any]) -> None:
    """Calls a register function as the loader does, and builds what comes back once."""
    try:
        cls = function(architecture)
        facts["returned"].append([key, architecture, cls.__name__, ""])
    except Exception as error:
        facts["returned"].append([key, architecture, "", in_short(error, 300)])
        facts["lacks"] = facts["lacks"] or lacking_package(error)
        return
    if cls.__name__ not in facts["built"]:
        facts["built"][cls.__name__] = _build(cls, key, model, facts)


def _build(cls: Any, key: str, model: Mapping[str, Any], facts: dict[str, Any]) -> str:
    """Build a class on meta from the toy config; return why that failed, or nothing."""
    import torch

    try:
        config = next((part for part in _parts(_config(key, model)) if isinstance(part, cls.config_class)), None)
        if config is None:
            return ""  # nothing to build it from
        with torch.device("meta"):
            made = cls._from_config(config, attn_implementation="eager")
    except Exception as error:
        facts["lacks"] = facts["lacks"] or lacking_package(error)
        return "" if lacking_package(error) else in_short(error, 300)
    facts["hooks"] += [[cls.__name__, *fault] for fault in _faults(made)]
    return ""


def _faults(made: Any) -> list[tuple[str, str]]:
    """Return the faults of a model's hooks, which receive the index of a checkpoint as on the hub."""
    from omni_kit.errors import OmniKitError
    from omni_kit.targets.veomni.runtime.hooks import INDEX, faults_of

    with tempfile.TemporaryDirectory(prefix="omni-kit-check-") as folder:
        try:
            names = _hub_names(type(made).__name__, made.config)
            files = {
                name: f"model-{number:05d}-of-{len(names):05d}.safetensors" for number, name in enumerate(names, 1)
            }
            (Path(folder) / INDEX).write_text(json.dumps({"weight_map": files}), encoding="utf-8")
        except OmniKitError:  # without one, that hook is not asked
            pass
        return faults_of(made, Path(folder))[1]


def _hub_names(name: str, config: Any) -> list[str]:
    """Return the keys on the hub of a class with this config, as transformers declares them."""
    from omni_kit.layout.expected import expected_checkpoint
    from omni_kit.pysource.library import find_library
    from omni_kit.upstream.transformers.configs import ModelConfig, config_class
    from omni_kit.upstream.transformers.models import upstream_model

    switches = {key: value for key, value in type(config)().to_dict().items() if isinstance(value, bool)}
    values = {**config.to_dict(), **switches, "architectures": [name]}  # a toy goes without some parts
    of_type = config_class(find_library("transformers"), config.model_type)
    return list(
        expected_checkpoint(upstream_model(of_type.source.library, ModelConfig(of_type, values, "the toy"))).tensors
    )


def _config(key: str, model: Mapping[str, Any]) -> Any:
    """Return the toy config next to the model, else a toy of the defaults of the registered type."""
    from transformers import CONFIG_MAPPING
    from veomni.models.loader import MODEL_CONFIG_REGISTRY

    from omni_kit.toys.configs.language import toy_config

    own = MODEL_CONFIG_REGISTRY[key]() if key in MODEL_CONFIG_REGISTRY.valid_keys() else None
    if key not in CONFIG_MAPPING:
        return own() if own is not None else None
    plain = CONFIG_MAPPING[key]()
    cls = own if own is not None and issubclass(own, type(plain)) else type(plain)
    toy = Path(model["path"]) / "toy_config.json"
    values = read_mapping(toy) if toy.is_file() else toy_config(plain.to_dict())
    return cls.from_dict(values)


def _parts(config: Any) -> Iterator[Any]:
    """Yield a config, and all configs inside it."""
    if config is None:
        return
    yield config
    for name in getattr(config, "sub_configs", {}):
        part = getattr(config, name, None)
        if part is not None and not isinstance(part, dict):
            yield from _parts(part)
