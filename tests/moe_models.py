"""Every class with experts of the installed transformers, built small, each element of each parameter different."""

import importlib
import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from omni_kit.pysource.library import find_library
from omni_kit.toys.configs.language import toy_config

# Why a class is left out.
NOT_BUILT = {
    "Gemma4VisionModel": "its inherited config_class is another model's",
    "Qwen3OmniMoeCode2Wav": "no experts; in 5.9 its inherited config_class is another model's",
    "Qwen3OmniMoeCode2WavTransformerModel": "no experts; in 5.9 its inherited config_class is another model's",
    "Qwen3OmniMoeCode2WavDecoderBlock": "no model of its own",
    "NllbMoeEncoder": "not exported: no checkpoint can name it",
    "NllbMoeDecoder": "not exported: no checkpoint can name it",
    "SwitchTransformersStack": "not exported: no checkpoint can name it",
    "InklingVisionModel": "no experts, and needs scipy",
    "InklingModel": "its vision tower needs scipy",
    "InklingForConditionalGeneration": "its vision tower needs scipy",
}
# What a config must say for the model to have experts, or to be built at all, where the class does not say it.
GIVEN: dict[str, dict[str, Any]] = {
    "gemma4": {"text_config": {"enable_moe_block": True, "num_experts": 10, "top_k_experts": 3,
                               "moe_intermediate_size": 40}},
    "gemma4_text": {"enable_moe_block": True, "num_experts": 10, "top_k_experts": 3, "moe_intermediate_size": 40},
    "vitpose": {"backbone_config": {"num_experts": 4}},
    "vitpose_backbone": {"num_experts": 4},
    "granitemoehybrid": {"num_local_experts": 10},
}  # fmt: skip
# What the small config says in the end.
LAST: dict[str, dict[str, Any]] = {"Qwen3OmniMoeForConditionalGeneration": {"enable_audio_output": True}}
BY_CLASS: dict[str, dict[str, Any]] = {"Qwen3OmniMoeTalkerForConditionalGeneration": {"spatial_merge_size": 2}}
# Models around another model's experts: their own files do not speak of any.
WRAPPERS = ("kimi_k25", "nemotron3_5_transcribe", "nemotron_h_omni", "vitpose")
_FIRST = 0x40000000  # as a float32 this is 2.0, and every integer after it another number


def modeling_files() -> list[str]:
    """Modules of the installed transformers that speak of experts ("mixtral.modeling_mixtral"), without importing."""
    root = find_library("transformers").root / "models"
    every = sorted(root.glob("*/modeling_*.py"))
    files = (f for f in every if f.parent.name in WRAPPERS or "expert" in f.read_text(encoding="utf-8"))
    return [f"{file.parent.name}.{file.stem}" for file in files]


# One of each sort of layout, in memory or on disk.
SAMPLE = frozenset(
    {"mixtral", "qwen3_moe", "gpt_oss", "dbrx", "granitemoe", "deepseek_v3", "ernie4_5_vl_moe", "llama4", "nemotron_h"}
)


def every_modeling_file() -> list[Any]:
    """A case for each module; those outside of the sample belong to the sweep."""
    return [
        pytest.param(module, id=module, marks=() if module.partition(".")[0] in SAMPLE else pytest.mark.sweep)
        for module in modeling_files()
    ]


@cache
def moe_classes(module: str) -> tuple[type, ...]:
    """The model classes of a module that have experts."""
    import torch

    found = []
    for cls in _classes(module):
        with torch.device("meta"):
            names = [name for name, _ in cls._from_config(config(cls)).named_parameters()]  # type: ignore[attr-defined]
        if any(re.search(r"(?<!shared_)(?<!with_)(expert|moe)", name) for name in names):
            found.append(cls)
    return tuple(found)


def _classes(module: str) -> Iterator[type]:
    from transformers import PreTrainedModel

    loaded = importlib.import_module(f"transformers.models.{module}")
    for name, cls in list(vars(loaded).items()):
        own = isinstance(cls, type) and issubclass(cls, PreTrainedModel) and cls.__module__ == loaded.__name__
        if own and cls.config_class and not name.endswith("PreTrainedModel") and name not in NOT_BUILT:
            yield cls


def config(cls: type) -> Any:
    """A small config of a class."""
    kind = cls.config_class  # type: ignore[attr-defined]
    values = kind().to_dict()
    for key, given in GIVEN.get(kind.model_type, {}).items():
        values[key] = {**values[key], **given} if isinstance(given, dict) else given
    toy = toy_config(values | BY_CLASS.get(cls.__name__, {}))
    return kind.from_dict(toy | LAST.get(cls.__name__, {}))


def build(cls: type) -> Any:
    """A small model whose parameters hold the bit patterns from 2.0 on, one after the other."""
    import torch

    model = cls._from_config(config(cls))  # type: ignore[attr-defined]
    start = _FIRST
    with torch.no_grad():
        for parameter in model.parameters():
            ramp = torch.arange(start, start + parameter.numel(), dtype=torch.int32)
            parameter.copy_(ramp.view(torch.float32).view(parameter.shape))
            start += parameter.numel()
    assert start < 0x7F800000, "not a finite number any more"
    return model


def origins(model: Any, tensors: dict[str, Any]) -> dict[str, set[str]]:
    """For each tensor of a checkpoint, the parameters that its elements come from, under all their names.

    Tensors that hold anything else (buffers, what saving computes) are left out.
    """
    import torch

    names: dict[int, set[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(parameter.data_ptr(), set()).add(name)
    parameters = list(model.parameters())
    ends = torch.tensor([_FIRST + sum(p.numel() for p in parameters[: i + 1]) for i in range(len(parameters))])
    found: dict[str, set[str]] = {}
    for key, tensor in tensors.items():
        if tensor.dtype != torch.float32:
            continue
        bits = tensor.contiguous().view(torch.int32)
        if bits.numel() and bits.min() >= _FIRST and bits.max() < ends[-1]:
            places = torch.bucketize(bits.flatten().long(), ends, right=True).unique().tolist()  # type: ignore[no-untyped-call]
            found[key] = set().union(*(names[parameters[place].data_ptr()] for place in places))
    return found


def saved(model: Any, directory: Path) -> dict[str, Any]:
    """Saves with transformers itself; gives the tensors as on disk."""
    from safetensors.torch import load_file

    model.save_pretrained(directory)
    assert json.loads((directory / "config.json").read_text(encoding="utf-8"))["architectures"]
    return {key: value for file in sorted(directory.glob("*.safetensors")) for key, value in load_file(file).items()}
