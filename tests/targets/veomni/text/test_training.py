"""The training files of a language model: VeOmni's own fields, the paths that were given, and data in their format."""

import dataclasses
import json
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_type_hints
from unittest.mock import patch

import pytest
import yaml

from omni_kit.pysource.library import find_library
from omni_kit.scaffold import new_model
from omni_kit.targets.protocol import Request
from omni_kit.targets.veomni.training import ModelPlace, model_place
from omni_kit.upstream.subject import Subject, open_source


def written(place: Path, source: str = "qwen3") -> Path:
    new_model("mine", source, target="veomni", into=place)
    return place / "mine"


def values_of(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(file.read_text(encoding="utf-8"))
    return found


def unknown(values: dict[str, Any], cls: Any, at: str = "") -> Iterator[str]:
    """The keys that a dataclass of VeOmni's arguments does not have."""
    hints = get_type_hints(cls)
    for key, value in values.items():
        if key not in {field.name for field in dataclasses.fields(cls)}:
            yield f"{at}{key}"
        elif dataclasses.is_dataclass(hints[key]) and isinstance(value, dict):
            yield from unknown(value, hints[key], f"{at}{key}.")


@pytest.mark.parametrize("file", ["train.yaml", "train_lora.yaml"])
def test_every_field_is_one_of_veomnis(file: str, tmp_path: Path) -> None:
    from veomni.arguments import VeOmniArguments

    assert list(unknown(values_of(written(tmp_path) / file), VeOmniArguments)) == []
    assert list(unknown({"train": {"learning_rate": 1}}, VeOmniArguments)) == ["train.learning_rate"]


def test_adapters_go_on_linear_layers_but_routers_experts_and_the_head(tmp_path: Path) -> None:
    lora = values_of(written(tmp_path, "qwen3_moe") / "train_lora.yaml")["model"]["lora_config"]
    assert lora["lora_modules"] == ["k_proj", "o_proj", "q_proj", "v_proj"]


@pytest.mark.parametrize(("template", "expected"), [(True, "tokenizer"), (False, "default")])
def test_the_checkpoint_that_was_given_is_named_with_its_chat_template(
    template: bool, expected: str, tmp_path: Path
) -> None:
    checkpoint = tmp_path / "checkpoint"
    checkpoint.mkdir()
    (checkpoint / "config.json").write_text(json.dumps({"model_type": "qwen3"}), encoding="utf-8")
    settings = {"chat_template": "{{ messages }}"} if template else {}
    (checkpoint / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")

    values = values_of(written(tmp_path, str(checkpoint)) / "train.yaml")

    assert values["model"]["model_path"] == str(checkpoint)
    assert values["data"]["chat_template"] == expected


def test_a_repository_of_the_hub_is_downloaded_first(tmp_path: Path) -> None:
    subject = Subject("hf://some/model", find_library("transformers"), "qwen3")
    found = model_place(subject, Request("mine", tmp_path))
    assert found == ModelPlace("./model", "hf download some/model --local-dir ./model")


def test_a_name_alone_leaves_the_path_open(tmp_path: Path) -> None:
    assert model_place(open_source("qwen3"), Request("mine", tmp_path)) == ModelPlace("./mine_checkpoint", given=False)
    assert "Set `model.model_path`" in (written(tmp_path) / "README.md").read_text(encoding="utf-8")


def test_the_readme_has_the_command_of_every_training_file(tmp_path: Path) -> None:
    package = written(tmp_path)
    text, name = (package / "README.md").read_text(encoding="utf-8"), package.name
    files = sorted(file.name for file in package.glob("train*.yaml"))
    assert files == ["train.yaml", "train_lora.yaml"]
    assert all(f"torchrun --nproc_per_node=8 -m {name}.train {name}/{file}\n" in text for file in files)


def test_the_maker_of_data_writes_conversations(tmp_path: Path) -> None:
    package, made = written(tmp_path), tmp_path / "data.jsonl"
    with patch.object(sys, "argv", ["make_data", str(made), "--samples", "3"]):
        runpy.run_path(str(package / "make_data.py"), run_name="__main__")

    rows = [json.loads(line) for line in made.read_text(encoding="utf-8").splitlines()]

    values = values_of(package / "train.yaml")["data"]
    assert (values["data_type"], values["text_keys"]) == ("conversation", "messages")
    masks = [[message["loss_mask"] for message in row["messages"]] for row in rows]
    assert masks == [[0, 1]] * 3


def test_samples_share_a_row_and_upstream_that_would_mix_them_gets_rows_of_their_own(tmp_path: Path) -> None:
    kept, mixed = written(tmp_path), written(tmp_path / "other", "bloom")
    assert values_of(kept / "train.yaml")["train"]["dyn_bsz"] is True
    assert values_of(mixed / "train.yaml")["train"]["dyn_bsz"] is True
    assert [(place / "packed_rows.py").is_file() for place in (kept, mixed)] == [False, True]
    assert ["sees across packed samples" in (place / "train.py").read_text() for place in (kept, mixed)] == [
        True,
        False,
    ]


def test_what_sees_ahead_is_trained_without_flash_attention(tmp_path: Path) -> None:
    kept, ahead = written(tmp_path), written(tmp_path / "other", "paligemma")
    operations = values_of(ahead / "train.yaml")["model"]["ops_implementation"]
    assert operations["attn_implementation"] == "sdpa"
    switch = "_supports_flash_attn = False"
    assert [switch in (place / "__init__.py").read_text() for place in (kept, ahead)] == [False, True]


def test_attention_classes_of_upstream_s_own_are_trained_without_flash_attention(tmp_path: Path) -> None:
    looked_up, selected = written(tmp_path), written(tmp_path / "other", "gptj")
    operations = [
        values_of(place / "train.yaml")["model"].get("ops_implementation", {}) for place in (looked_up, selected)
    ]
    assert [one.get("attn_implementation") for one in operations] == [None, "eager"]


def test_a_classifier_that_pools_before_its_head_is_left_out(tmp_path: Path) -> None:
    left_out, kept = written(tmp_path, "electra"), written(tmp_path / "other", "gpt2")
    name = "ForSequenceClassification"
    assert [f"modeling.{model}{name}" in (place / "__init__.py").read_text() for place, model in (
        (left_out, "Electra"), (kept, "GPT2"))] == [False, True]  # fmt: skip
    config = next(left_out.glob("*_patch_gen_config.py")).read_text()
    assert '"ElectraForSequenceClassification",' in config
    assert "TODO" not in config
