"""What is said about sequence parallelism is what the level `sp` shows: held against its verdicts, taken by a run."""

import json
from pathlib import Path

import pytest

from omni_kit.scaffold import new_model
from omni_kit.targets.veomni.text.sequence import cut_sequences, kept_apart, layers_on_whole_samples, sees_ahead
from omni_kit.targets.veomni.text.sites import find_sites
from omni_kit.upstream.subject import open_source

# Each passed, or failed, at the level sp with 2 and 4 processes on a CPU.
PASSES = ("llama", "qwen3_moe", "deepseek_v3", "gemma3_text", "gpt_oss", "glm4", "cohere2_moe", "electra", "gpt_neox")
FAILS = {
    "jamba": "mixes neighbouring tokens",
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
    assert cut_sequences(subject.model, find_sites(subject.model))[0]


@pytest.mark.parametrize("model_type", FAILS)
def test_where_it_fails(model_type: str) -> None:
    subject = open_source(model_type)
    fits, reason, _ = cut_sequences(subject.model, find_sites(subject.model))
    assert not fits
    assert FAILS[model_type] in reason


# Each passed, or failed, in the scenario `packed`.
KEPT_APART = ("biogpt", "cohere2_moe", "deepseek_v3", "electra", "gpt2", "gpt_oss", "hunyuan_v1_dense", "llama")
TAKEN_FOR_ONE = {
    "bart": "forward takes no position_ids",
    "blenderbot": "forward takes no position_ids",
    "falcon": "does not use transformers' registry",
    "jamba": "mixes neighbouring tokens",
    "minimax": "layers of type linear_attention",
    "nemotron": "does not use transformers' registry",
    "stablelm": "StableLmDecoderLayer.forward does not pass on",
}


@pytest.mark.parametrize("model_type", KEPT_APART)
def test_packed_sequences_are_kept_apart(model_type: str) -> None:
    subject = open_source(model_type)
    assert kept_apart(subject.model, find_sites(subject.model))[0]


@pytest.mark.parametrize("model_type", TAKEN_FOR_ONE)
def test_packed_sequences_are_one(model_type: str) -> None:
    subject = open_source(model_type)
    kept, reason, _ = kept_apart(subject.model, find_sites(subject.model))
    assert not kept
    assert TAKEN_FOR_ONE[model_type] in reason


# Layers that carry a state: their classes, where they can run on whole samples.
RUN_ON_WHOLE = {
    "qwen3_next": ["Qwen3NextGatedDeltaNet"],
    "qwen3_5": ["Qwen3_5GatedDeltaNet"],
    "bamba": ["BambaMixer"],
    "jamba": [],  # its layer passes no keywords
    "nemotron_h": [],  # for the same reason
    "recurrent_gemma": [],  # its forward takes no mask
    "llama": [],
}


@pytest.mark.parametrize("model_type", RUN_ON_WHOLE)
def test_layers_that_carry_a_state_run_on_whole_samples(model_type: str) -> None:
    subject = open_source(model_type)
    whole, sites = layers_on_whole_samples(subject.model), find_sites(subject.model)
    assert whole == RUN_ON_WHOLE[model_type]
    if whole:
        assert not kept_apart(subject.model, sites)[0]
        assert kept_apart(subject.model, sites, whole)[0]
        assert cut_sequences(subject.model, sites, whole)[0]


@pytest.mark.parametrize(("model_type", "declares"), [("got_ocr2", False), ("llava", True)])
def test_a_model_as_a_whole_declares_flash_attention_or_gets_rows_of_their_own(
    model_type: str, declares: bool, tmp_path: Path
) -> None:
    """The layers of both texts are another type's, which declares it."""
    plan = new_model("mine", model_type, target="veomni", into=tmp_path, dry_run=True).plan
    packed = next(one for one in plan.decisions if one.what == "packed sequences")
    assert (packed.choice == "upstream") == declares


def test_a_list_that_is_none_is_no_list(tmp_path: Path) -> None:
    """Nothing checks the type of a key that the config class does not declare."""
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"model_type": "llama", "layer_types": 2.5}))
    subject = open_source(str(config))
    assert cut_sequences(subject.model, find_sites(subject.model))[0]


@pytest.mark.parametrize(("model_type", "where"), [("paligemma", "PaliGemma"), ("gemma3", "Gemma3"), ("llava", "")])
def test_tokens_of_a_picture_that_see_later_ones_are_found(model_type: str, where: str) -> None:
    found = sees_ahead(open_source(model_type).model)
    assert (found is not None) == bool(where)
    assert found is None or found[0].startswith(where)


def test_the_text_of_a_file_is_judged_by_what_it_builds() -> None:
    """gemma3's file lets pictures see ahead in classes that its text model does not build."""
    assert sees_ahead(open_source("gemma3_text").model) is None
