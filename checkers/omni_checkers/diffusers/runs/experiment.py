"""Runs of models in their own processes.

Rules never import torch: these processes do. Models are built on the meta device, where they have no weights and
nothing is computed.
"""

import importlib
import inspect
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from omni_kit.errors import in_short
from omni_kit.isolation.failures import lacking_package

_ROUNDS = 5.0
"""Seconds for building it again and again, each time with one parameter changed."""


def look_at(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return a model's faults: [kind, message] each, of kinds "built", "config" and "declared"."""
    import torch

    try:
        if given["folder"]:
            sys.path.insert(0, given["folder"])
        cls = getattr(importlib.import_module(given["module"]), given["name"])
    except Exception as error:
        return {"lacks": lacking_package(error), "wrong": [["built", f"it cannot be imported: {in_short(error, 300)}"]]}
    if inspect.isabstract(cls) or _wants_more(cls, given["toy"]):
        return {"lacks": "values for what its __init__ has no defaults for", "wrong": []}
    toy = _taken(cls, given["toy"])
    try:
        with torch.device("meta"):
            model = cls(**toy)
    except Exception as error:
        if not toy and any(one.default is None for one in _parameters(cls).values()):
            return {"lacks": f"values for what is None by default: {in_short(error, 300)}", "wrong": []}
        return {"lacks": lacking_package(error), "wrong": [["built", f"it cannot be built: {in_short(error, 300)}"]]}
    others = list(_others(cls, toy))
    wrong = [
        *(["built", message] for message in _asked(model)),
        *(["config", message] for message in _kept(cls, model, others)),
        *(["declared", message] for message in _declared([model, *(other for _, _, other in others)])),
    ]
    return {"lacks": "", "wrong": wrong}


def _parameters(cls: type) -> dict[str, inspect.Parameter]:
    found = dict(inspect.signature(cls.__init__).parameters)  # type: ignore[misc]
    found.pop("self", None)
    return {name: one for name, one in found.items() if one.kind not in (one.VAR_KEYWORD, one.VAR_POSITIONAL)}


def _taken(cls: type, toy: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in toy.items() if name in _parameters(cls)}


def _wants_more(cls: type, toy: Mapping[str, Any]) -> bool:
    return any(one.default is one.empty and name not in toy for name, one in _parameters(cls).items())


def _asked(model: Any) -> Iterator[str]:
    """Yield the features that diffusers requires of every model and this one fails."""
    if getattr(model, "_supports_gradient_checkpointing", False):
        try:
            model.enable_gradient_checkpointing()
        except Exception as error:
            yield f"enable_gradient_checkpointing fails: {in_short(error, 300)}"
    if hasattr(model, "attn_processors") and hasattr(model, "set_attn_processor"):
        try:
            before = dict(model.attn_processors)
            model.set_attn_processor(dict(before))
            if {name: type(one) for name, one in before.items()} != {
                name: type(one) for name, one in model.attn_processors.items()
            }:
                yield "set_attn_processor sets other processors than it receives"
        except Exception as error:
            yield f"set_attn_processor fails on the value of attn_processors: {in_short(error, 300)}"


def _others(cls: type, toy: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Yield the model with one parameter changed, each in turn, as long as there is time: (parameter, value, model)."""
    import torch

    until = time.monotonic() + _ROUNDS
    for name, one in _parameters(cls).items():
        changed = _other(toy.get(name, one.default))
        if changed is None or time.monotonic() > until:
            continue
        try:
            with torch.device("meta"):
                yield name, changed, cls(**{**toy, name: changed})
        except Exception:  # the value does not go with the others
            continue


def _kept(cls: type, model: Any, others: Sequence[tuple[str, Any, Any]]) -> Iterator[str]:
    """Yield parameters that the config does not hold, or not as they are given."""
    for name in _parameters(cls):
        if name not in model.config:
            yield f"'{name}' is not in the config: it is lost when the model is saved"
    for name, given, other in others:
        held = dict(other.config).get(name, given)
        if held != given:
            yield f"the config says {held!r} for '{name}', which was given as {given!r}"


def _other(value: Any) -> Any:
    """Return another value of the same sort; None if there is none that is sure to be one."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int) and value > 0:
        return 2 * value
    return value * 0.5 + 0.25 if isinstance(value, float) else None


def _declared(models: Sequence[Any]) -> Iterator[str]:
    """Declarations that fit no module of a model, however it is configured."""
    model = models[0]
    classes = {type(module).__name__ for one in models for module in one.modules()}
    modules = {name for one in models for name, _ in one.named_modules() if name}
    parameters = {name for one in models for name, _ in (*one.named_parameters(), *one.named_buffers())}
    for attribute in ("_no_split_modules", "_repeated_blocks"):
        for name in getattr(model, attribute, None) or ():
            if name not in classes:
                yield f"{attribute} names {name}, and no module is one"
    for pattern in getattr(model, "_skip_layerwise_casting_patterns", None) or ():
        if not any(re.search(pattern, name) for name in modules | parameters):
            yield f"_skip_layerwise_casting_patterns has '{pattern}', which fits no module"
    for name in getattr(model, "_keep_in_fp32_modules", None) or ():
        if not any(name in one for one in modules | parameters):
            yield f"_keep_in_fp32_modules names '{name}', but nothing has that name"
    for path in getattr(model, "_cp_plan", None) or {}:
        held = list(models)
        for part in path.split(".") if path else ():
            held = [inner for one in held for inner in _inside(one, part)]
        if not held:
            yield f"_cp_plan names '{path}', which leads to no module"


def _inside(module: Any, part: str) -> list[Any]:
    if part == "*":
        return list(module.children())
    children = dict(module.named_children())
    return [children[part]] if part in children else []
