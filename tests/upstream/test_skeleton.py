"""Skeletons against what transformers builds on the meta device."""

import importlib
from typing import Any

import pytest

from omni_kit.pysource.library import Library
from omni_kit.upstream.transformers.configs import ModelConfig, config_class
from omni_kit.upstream.transformers.models import upstream_model

# Dense and MoE; grouped heads, latent attention, shared experts, sliding windows, tied and untied, biases.
EXACT = [
    "llama", "qwen2", "qwen3", "qwen2_moe", "qwen3_moe", "olmoe", "olmo2", "mixtral", "mistral", "phi3", "gemma2",
    "gemma3_text", "gpt_oss", "deepseek_v3", "glm4", "glm4_moe", "granitemoe", "starcoder2", "cohere2", "minimax_m2",
    "hy_v3", "exaone4", "seed_oss", "smollm3", "phimoe", "jetmoe", "stablelm",
]  # fmt: skip


def built_on_meta(model_type: str) -> tuple[str, dict[str, tuple[int, ...]], dict[str, Any]]:
    """Class name, parameter shapes and config of the class that transformers builds."""
    import torch
    from transformers import AutoConfig, AutoModel, AutoModelForCausalLM

    config = AutoConfig.for_model(model_type)
    table = AutoModelForCausalLM._model_mapping
    cls = table[type(config)] if type(config) in table else AutoModel._model_mapping[type(config)]
    with torch.device("meta"):
        model = cls._from_config(config)
    shapes = {name: tuple(p.shape) for name, p in model.named_parameters(remove_duplicate=False)}
    return cls.__name__, shapes, config.to_dict()


@pytest.mark.parametrize("model_type", EXACT)
def test_equals_the_meta_device(library: Library, model_type: str) -> None:
    """From the class defaults alone, every parameter of the real model is found, with its shape, and no other."""
    name, truth, _ = built_on_meta(model_type)
    model = upstream_model(library, ModelConfig(config_class(library, model_type), {"architectures": [name]}, ""))
    assert {p.name: p.shape for p in model.skeleton.parameters if not p.buffer} == truth


def test_given_values_win(library: Library) -> None:
    given = {"num_hidden_layers": 2, "num_experts": 6, "mlp_only_layers": [0]}
    skeleton = upstream_model(library, ModelConfig(config_class(library, "qwen3_moe"), given, "")).skeleton
    names = skeleton.names()
    assert names["model.layers.1.mlp.experts.gate_up_proj"].shape == (6, 1536, 2048)
    assert "model.layers.0.mlp.gate_proj.weight" in names
    assert not any(name.startswith("model.layers.2.") for name in names)


def test_what_cannot_be_read_is_said(library: Library) -> None:
    """ConvBERT unfolds by a layer of torch that is not known here: it is named, not guessed."""
    skeleton = upstream_model(library, ModelConfig(config_class(library, "convbert"), {}, "")).skeleton
    path, expression = skeleton.unresolved[0]
    assert (path, expression.partition("(")[0]) == ("encoder.layer.0.attention.self.unfold", "nn.Unfold")


def test_an_activation_from_a_table_has_its_parameters(library: Library) -> None:
    """Apertus takes it from ACT2CLS, and most models from ACT2FN: the class behind the name is read."""
    config = {"num_hidden_layers": 1}
    skeleton = upstream_model(library, ModelConfig(config_class(library, "apertus"), config, "")).skeleton
    assert skeleton.unresolved == ()
    names = {f"model.layers.0.mlp.act_fn.{leaf}" for leaf in ("alpha_p", "alpha_n", "beta", "eps")}
    assert names <= skeleton.names().keys()


def test_a_module_that_a_function_makes(library: Library) -> None:
    config = {"n_layer": 1, "n_embd": 32, "dff": 48}
    skeleton = upstream_model(library, ModelConfig(config_class(library, "ctrl"), config, "")).skeleton
    shapes = {name: p.shape for name, p in skeleton.names().items() if ".ffn." in name and name.endswith("weight")}
    assert shapes == {"transformer.h.0.ffn.0.weight": (48, 32), "transformer.h.0.ffn.2.weight": (32, 48)}


def test_evidence_points_at_the_assignment(library: Library) -> None:
    model = upstream_model(library, ModelConfig(config_class(library, "olmoe"), {}, ""))
    parameter = model.skeleton.names()["model.layers.0.mlp.experts.gate_up_proj"]
    file, _, line = parameter.where.partition(":")
    text = (library.root.parent / file).read_text(encoding="utf-8").splitlines()[int(line) - 1]
    assert "gate_up_proj" in text
    assert parameter.owner == "OlmoeExperts"
    assert parameter.pattern == "model.layers.*.mlp.experts.gate_up_proj"


def test_submodels_are_the_pretrained_ones(library: Library) -> None:
    model = upstream_model(library, ModelConfig(config_class(library, "olmoe"), {}, ""))
    assert model.skeleton.submodels == (("", "OlmoeForCausalLM", "olmoe"), ("model", "OlmoeModel", "olmoe"))
    module = importlib.import_module(model.source.module)
    assert hasattr(module, "OlmoeForCausalLM")
