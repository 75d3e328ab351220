"""What is said about sequence parallelism is what the level `sp` shows: held against its verdicts, taken by a run."""

import json
from pathlib import Path

import pytest

from omni_kit.targets.veomni.text.sequence import cut_sequences, kept_apart, sees_ahead
from omni_kit.targets.veomni.text.sites import find_sites
from omni_kit.upstream.subject import open_source

# Each passed, or failed, at the level sp with 2 and 4 processes on a CPU.
PASSES = ("llama", "qwen3_moe", "deepseek_v3", "gemma3_text", "gpt_oss", "glm4", "cohere2_moe", "electra", "gpt_neox")
FAILS = {
    "bamba": "mixes neighbouring tokens",
    "bloom": "does not use transformers' registry",
    "gpt2": "no nn.Linear",
    "hrm_text": "config rejects flash attention",
    "minimax": "layers of type linear_attention",
    "rwkv": "",
    "modernbert-decoder": "the loss is upstream's own",
}


@pytest.mark.parametrize("model_type", PASSES)
def test_where_it_passes(model_type: str) -> None:
    subject = open_source(model_type)
    assert cut_sequences(subject.model, find_sites(subject.model, subject.profile))[0]


@pytest.mark.parametrize("model_type", FAILS)
def test_where_it_fails(model_type: str) -> None:
    subject = open_source(model_type)
    fits, reason, _ = cut_sequences(subject.model, find_sites(subject.model, subject.profile))
    assert not fits
    assert FAILS[model_type] in reason


# Each passed, or failed, in the scenario `packed`.
KEPT_APART = ("biogpt", "cohere2_moe", "deepseek_v3", "electra", "gpt2", "gpt_oss", "hunyuan_v1_dense", "llama")
TAKEN_FOR_ONE = {
    "bamba": "mixes neighbouring tokens",
    "bart": "forward takes no position_ids",
    "blenderbot": "forward takes no position_ids",
    "falcon": "does not use transformers' registry",
    "jamba": "mixes neighbouring tokens",
    "minimax": "layers of type linear_attention",
    "nemotron": "does not use transformers' registry",
    "qwen3_next": "mixes neighbouring tokens",
    "stablelm": "StableLmDecoderLayer.forward does not pass on",
}


@pytest.mark.parametrize("model_type", KEPT_APART)
def test_packed_sequences_are_kept_apart(model_type: str) -> None:
    subject = open_source(model_type)
    assert kept_apart(subject.model, find_sites(subject.model, subject.profile))[0]


@pytest.mark.parametrize("model_type", TAKEN_FOR_ONE)
def test_packed_sequences_are_one(model_type: str) -> None:
    subject = open_source(model_type)
    kept, reason, _ = kept_apart(subject.model, find_sites(subject.model, subject.profile))
    assert not kept
    assert TAKEN_FOR_ONE[model_type] in reason


def test_a_list_that_is_none_is_no_list(tmp_path: Path) -> None:
    """Nothing checks the type of a key that the config class does not declare."""
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"model_type": "llama", "layer_types": 2.5}))
    subject = open_source(str(config))
    assert cut_sequences(subject.model, find_sites(subject.model, subject.profile))[0]


@pytest.mark.parametrize(("model_type", "where"), [("paligemma", "PaliGemma"), ("gemma3", "Gemma3"), ("llava", "")])
def test_tokens_of_a_picture_that_see_later_ones_are_found(model_type: str, where: str) -> None:
    found = sees_ahead(open_source(model_type).model)
    assert (found is not None) == bool(where)
    assert found is None or found[0].startswith(where)


def test_the_text_of_a_file_is_judged_by_what_it_builds() -> None:
    """gemma3's file lets pictures see ahead in classes that its text model does not build."""
    assert sees_ahead(open_source("gemma3_text").model) is None
