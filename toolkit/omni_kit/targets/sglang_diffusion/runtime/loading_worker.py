"""The process that runs SGLang's loader.

SGLang builds its model on the meta device, and its own mapping is given every key with a tensor that has no data.
"""

import json
import logging
import os
from collections import defaultdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from omni_kit.errors import OmniKitError
from omni_kit.layout.headers import TORCH_NAMES
from omni_kit.targets.sglang_diffusion.runtime.engine import free_port, prepare, server_arguments
from omni_kit.upstream.diffusers.pipelines import INDEX


class _NotServed(OmniKitError):
    """Raised when SGLang has no model for a component; the message gives the reason."""


class _Said(logging.Handler):
    """The errors that are logged."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.errors: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep one."""
        self.errors.append(record.getMessage())


class _Reached(BaseException):
    """Not an Exception: SGLang's loader takes those for a reason to fall back to diffusers' classes."""

    def __init__(self, model_class: type, given: dict[str, Any], dtype: torch.dtype) -> None:
        super().__init__(model_class.__name__)
        self.model_class, self.given, self.dtype = model_class, given, dtype


def load(job: dict[str, Any]) -> dict[str, Any]:
    """Build the model that SGLang would build, and send every key through its mapping."""
    prepare(None)
    from sglang.multimodal_gen.runtime.loader.utils import get_param_names_mapping, initialize_model
    from sglang.multimodal_gen.runtime.utils.external_model_package import load_external_model_package

    load_external_model_package()  # that of SGLANG_EXTERNAL_MODEL_PACKAGE, as the server does
    reached = _reach(Path(job["pipeline"]), job["component"])
    model: Any = initialize_model(reached.model_class, reached.given, reached.dtype, torch.device("meta"))
    state = model.state_dict()
    mapping = get_param_names_mapping(model.param_names_mapping, valid_target_names=set(state))
    tensors = _given(job["tensors"])
    if (before := getattr(model, "preprocess_loaded_state_dict", None)) is not None:
        tensors = dict(before(iter(tensors.items())))
    writes = [(key, *_sent(key, tensor, mapping, set(state))) for key, tensor in tensors.items()]
    return {
        "class": type(model).__name__,
        "version": version("sglang"),
        "parameters": {name: list(tensor.shape) for name, tensor in state.items()},
        "filled": _filled(model),
        "writes": writes,
        "refused": dict(_refused(model, state, writes, tensors)),
    }


def _reach(pipeline: Path, component: str) -> _Reached:
    """Return the class that SGLang's loader is about to build for a component, with its arguments.

    Raises:
        _NotServed: it never comes to a class of its own.
    """
    from sglang.multimodal_gen.runtime.distributed import maybe_init_distributed_environment_and_model_parallel
    from sglang.multimodal_gen.runtime.loader.component_loaders import component_loader

    arguments = server_arguments(pipeline, {"pipeline_class_name": _served(pipeline)})
    os.environ |= {"LOCAL_RANK": "0", "RANK": "0", "WORLD_SIZE": "1", "LOCAL_SIZE": "1"}
    maybe_init_distributed_environment_and_model_parallel(
        tp_size=1, sp_size=1, distributed_init_method=f"tcp://127.0.0.1:{free_port()}"
    )
    loader = component_loader.ComponentLoader.for_component_type(component, "diffusers", None)

    def reached(self: Any, model_cls: type, init_params: dict[str, Any], *_: Any, dtype: Any = None, **__: Any) -> Any:
        raise _Reached(model_cls, init_params, dtype or torch.float32)

    type(loader).load_state_dict_model = reached
    try:
        loader.load_customized(str(pipeline / component), arguments, component)
    except _Reached as found:
        return found
    raise _NotServed(f"SGLang's loader of {component} does not build a model")


def _served(pipeline: Path) -> str:
    """Return the name under which SGLang serves a pipeline.

    Raises:
        _NotServed: it has none of that name, or cannot tell which of its configs is meant.
    """
    from sglang.multimodal_gen import registry

    name: str = json.loads((pipeline / INDEX).read_text(encoding="utf-8"))["_class_name"]
    said = _Said()
    registry.logger.addHandler(said)
    known = registry.get_model_info(str(pipeline), backend="sglang")
    if known is None and name not in registry._PIPELINE_REGISTRY:
        raise _NotServed(f"it has no pipeline {name}; a plugin is named by SGLANG_EXTERNAL_MODEL_PACKAGE")
    if known is None and registry.get_pipeline_config_classes(name) is None:
        why = " ".join(said.errors[0].split()).partition(". It")[0] if said.errors else f"it has no config of {name}"
        raise _NotServed(f"{why}; some configs are chosen by the directory's name: name it as on the hub")
    return name


def _given(tensors: dict[str, Any]) -> dict[str, torch.Tensor]:
    return {
        key: torch.empty(shape, dtype=getattr(torch, TORCH_NAMES[dtype]), device="meta")
        for key, (dtype, shape) in tensors.items()
    }


def _sent(key: str, tensor: torch.Tensor, mapping: Any, valid: set[str]) -> tuple[str, int, int]:
    """Return SGLang's target of a key: the parameter, and which part of how many; an empty name if it is dropped."""
    from sglang.multimodal_gen.runtime.loader.utils import hf_to_custom_state_dict

    _, back = hf_to_custom_state_dict({key: tensor}, mapping, valid_target_names=valid)
    for target, (_, part, parts) in back.items():
        return target, part or 0, parts or 0
    return "", 0, 0


def _filled(model: Any) -> dict[str, str]:
    """Return parameters that the model says it fills itself where no key does, with what."""
    said = {name: getattr(one, "missing_param_init", None) for name, one in model.named_parameters()}
    return {name: how for name, how in said.items() if how in ("ones", "zeros")}


def _refused(model: Any, state: dict[str, Any], writes: list[Any], tensors: dict[str, torch.Tensor]) -> Any:
    """Return parameters that cannot be made of what is written to them, with why."""
    parameters = dict(model.named_parameters())
    written: dict[str, dict[int, torch.Tensor]] = defaultdict(dict)
    for key, target, part, _ in writes:
        written[target][part] = tensors[key]
    for target, parts in written.items():
        if target in state:
            try:
                _fill(parameters.get(target), state[target], [tensor for _, tensor in sorted(parts.items())])
            except Exception as error:  # whatever SGLang's loader raises for these shapes is the answer
                yield target, f"{type(error).__name__}: {error}".strip().splitlines()[0]


def _fill(parameter: Any, wanted: torch.Tensor, parts: list[torch.Tensor]) -> None:
    made = parts[0] if len(parts) == 1 else torch.cat(parts, dim=0)
    load = getattr(parameter, "weight_loader", None)
    if load is not None:
        load(parameter, made)
    elif made.shape != wanted.shape:
        raise ValueError(f"it gets {list(made.shape)}, the model has {list(wanted.shape)}")
