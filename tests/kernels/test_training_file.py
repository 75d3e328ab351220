"""Chosen kernels in a training file: every other line stays as a person wrote it."""

from pathlib import Path

import pytest
import yaml

from omni_kit.errors import BadInput
from omni_kit.kernels.training_file import Setting, block, check_training_file, merge_file, merged

PLACE = ("model", "ops_implementation")
CHOSEN = {"attn_implementation": "sdpa", "cross_entropy_loss_implementation": "chunk_loss"}

WRITTEN = """\
# my run
model:
  model_path: ./here   # the checkpoint
  ops_implementation:
    # measured once
    cross_entropy_loss_implementation: eager  # was faster
    rms_norm_implementation: "liger_kernel"

train:
  lr: 1.0e-5
"""


def test_settings_are_replaced_and_everything_else_stays() -> None:
    text = merged(WRITTEN, PLACE, CHOSEN)
    assert yaml.safe_load(text)["model"]["ops_implementation"] == {**CHOSEN, "rms_norm_implementation": "liger_kernel"}
    lost = [line for line in WRITTEN.splitlines() if line not in text.splitlines()]
    assert lost == ["    cross_entropy_loss_implementation: eager  # was faster"]
    assert "cross_entropy_loss_implementation: chunk_loss  # was faster" in text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# nothing yet\n",
        "train:\n  lr: 1\n",
        "train:\n  lr: 1",
        "model:\n  model_path: ./here\ntrain:\n  lr: 1\n",
        "model:\n    model_path: ./here # four spaces\n",
        "model:\n  ops_implementation:\n  model_path: ./here\n",
        "model:\n  ops_implementation: null\n  model_path: ./here\n",
        "model:\n  ops_implementation: {attn_implementation: eager, moe_implementation: eager}\n  model_path: ./here\n",
        "model:\n  ops_implementation:\n    attn_implementation: eager\n",
        "model:\ntrain:\n  lr: 1\n",
    ],
)
def test_wherever_they_were_they_are_set(text: str) -> None:
    before = yaml.safe_load(text) or {}
    after = yaml.safe_load(merged(text, PLACE, CHOSEN))
    was = (before.get("model") or {}).get("ops_implementation") or {}
    assert after["model"]["ops_implementation"] == {**was, **CHOSEN}
    assert {key: value for key, value in after.items() if key != "model"} == {
        key: value for key, value in before.items() if key != "model"
    }
    assert merged(merged(text, PLACE, CHOSEN), PLACE, CHOSEN) == merged(text, PLACE, CHOSEN)


@pytest.mark.parametrize("text", ["- a list\n", "model: [1, 2]\n", "model: {a: {b: 1}}\n", "model: name\n", "a: [\n"])
def test_what_is_not_understood_is_refused(text: str) -> None:
    with pytest.raises(BadInput):
        merged(text, PLACE, CHOSEN)


def test_a_file_that_cannot_be_merged_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "train.yaml"
    file.write_text("model: name\n", encoding="utf-8")
    with pytest.raises(BadInput, match="unsupported form"):
        merge_file(file, [(PLACE, CHOSEN)])
    assert file.read_text(encoding="utf-8") == "model: name\n"
    with pytest.raises(BadInput, match="not a directory"):
        check_training_file(tmp_path / "nowhere" / "train.yaml")


def test_a_file_is_made_where_there_is_none(tmp_path: Path) -> None:
    merge_file(tmp_path / "train.yaml", [(PLACE, CHOSEN)])
    assert (tmp_path / "train.yaml").read_text(encoding="utf-8") == block([(PLACE, CHOSEN)])


@pytest.mark.parametrize("name", ["a: 1\nevil", "on", "#", "a: b", "&a", ""])
def test_names_are_no_more_than_names(name: str) -> None:
    chosen = {name: "b\nevil: 1"}
    assert yaml.safe_load(block([((name, "x"), chosen)])) == {name: {"x": chosen}}
    assert yaml.safe_load(merged("m:\n  z: 1\n", ("m",), chosen)) == {"m": {"z": 1, **chosen}}


def test_settings_in_several_places_become_one_file() -> None:
    settings: list[Setting] = [(PLACE, CHOSEN), (("train", "compile"), {"enable": True}), (("train",), {"pad": True})]
    expected = {
        "model": {"ops_implementation": CHOSEN},
        "train": {"compile": {"enable": True}, "pad": True},
    }
    assert yaml.safe_load(block(settings)) == expected
