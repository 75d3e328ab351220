"""Profiles of real models."""

import pytest

from omni_kit.pysource.library import Library
from omni_kit.upstream.transformers.configs import config_class
from omni_kit.upstream.transformers.defaults import default_config
from omni_kit.upstream.transformers.models import upstream_model
from omni_kit.upstream.transformers.traits import expert_parameters, profile
from tests.conftest import Models


@pytest.fixture
def defaults(library: Library) -> Models:
    """The upstream model of a model_type with its defaults, nested configs included."""
    return lambda name: upstream_model(library, default_config(config_class(library, name)))


@pytest.mark.parametrize(
    ("model_type", "kind"),
    [("llama", "llm"), ("qwen3", "llm"), ("qwen3_moe", "moe"), ("olmoe", "moe"), ("deepseek_v3", "moe"),
     ("gpt_oss", "moe"), ("mixtral", "moe"), ("qwen2_vl", "vlm"), ("siglip", "vlm"), ("jamba", "moe"),
     ("codegen", "llm"), ("bert", "other"), ("roberta", "other"), ("bart", "other"), ("t5", "other"),
     ("mamba", "other"), ("rwkv", "other"), ("xlstm", "other"), ("qwen3_vl_moe", "vlm-moe"),
     ("qwen3_omni_moe", "omni-moe"), ("llama4", "vlm-moe"),
     ("chameleon", "vlm"), ("granite_speech", "vlm"), ("emu3", "llm"), ("whisper", "other"), ("evolla", "other")],
)  # fmt: skip
def test_kind(defaults: Models, model_type: str, kind: str) -> None:
    assert profile(defaults(model_type)).kind == kind


@pytest.mark.parametrize(
    ("model_type", "trait"),
    [("deepseek_v3", "mla"), ("deepseek_v3", "shared-experts"), ("gemma3_text", "centered-rmsnorm"),
     ("gemma3_text", "tied-embeddings"), ("gpt_oss", "attention-sinks"), ("qwen3", "qk-norm"),
     ("glm4", "partial-rotary"), ("deepseek_v3", "router-bias"), ("gpt_oss", "sliding-attention")],
)  # fmt: skip
def test_trait_has_evidence(model: Models, model_type: str, trait: str) -> None:
    found = profile(model(model_type)).trait(trait)
    assert found is not None
    assert found.evidence


@pytest.mark.parametrize(
    ("model_type", "trait"),
    [("llama", "moe"), ("llama", "mla"), ("llama", "qk-norm"), ("qwen3", "centered-rmsnorm"),
     ("qwen3", "attention-sinks"), ("llama", "partial-rotary"), ("llama", "tied-embeddings"),
     ("qwen3_moe", "shared-experts")],
)  # fmt: skip
def test_trait_is_not_claimed(model: Models, model_type: str, trait: str) -> None:
    assert profile(model(model_type)).trait(trait) is None


def test_experts(model: Models) -> None:
    experts = profile(model("deepseek_v3")).experts
    assert experts is not None
    assert (experts.count, experts.top_k, experts.intermediate_size, experts.shared) == (256, 8, 2048, 1)
    assert profile(model("llama")).experts is None


@pytest.mark.parametrize(("model_type", "count"), [("qwen3_vl_moe", 60), ("qwen3_omni_moe", 128), ("llama4", 16)])
def test_experts_of_the_text_model_inside_are_shown(defaults: Models, model_type: str, count: int) -> None:
    experts = profile(defaults(model_type)).experts
    assert experts is not None
    assert experts.count == count


@pytest.mark.parametrize(
    ("model_type", "words"),
    [("bert", "an encoder: MODEL_FOR_MASKED_LM"), ("bart", "an encoder-decoder: "), ("mamba", "no attention in ")],
)
def test_why_a_model_is_no_language_model_is_said(model: Models, model_type: str, words: str) -> None:
    assert profile(model(model_type)).kind_evidence.startswith(words)


def test_expert_parameters_are_real_names(model: Models) -> None:
    assert [p.pattern for p in expert_parameters(model("olmoe").skeleton)] == [
        "model.layers.*.mlp.experts.gate_up_proj",
        "model.layers.*.mlp.experts.down_proj",
    ]
    assert not expert_parameters(model("llama").skeleton)


def test_config_evidence_says_where(model: Models) -> None:
    given = profile(model("olmoe", tie_word_embeddings=True)).trait("tied-embeddings")
    assert given is not None
    assert given.evidence == "config.json: tie_word_embeddings"
