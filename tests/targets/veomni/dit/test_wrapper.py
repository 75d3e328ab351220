"""A generated wrapper as it runs: what it builds, saves and answers, and what it leaves alone."""

import json
from typing import Any

import pytest

from omni_kit.scaffold import new_model
from tests.forked import run_module

PROBE = "tests.targets.veomni.dit.wrapper_probe"
CLASS = "WanTransformer3DModel"


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    place = tmp_path_factory.mktemp("wrapper")
    new_model("mine", CLASS, target="veomni", into=place)
    answers = place / "answers.json"
    run_module(PROBE, place, answers, "mine", CLASS, diffusion=True)
    answered: dict[str, Any] = json.loads(answers.read_text(encoding="utf-8"))
    return answered


@pytest.mark.sweep
def test_diffusers_stays_as_it_is(found: dict[str, Any]) -> None:
    assert found["untouched"]


@pytest.mark.sweep
def test_building_takes_one_model_of_memory(found: dict[str, Any]) -> None:
    assert found["peak"] < 1.5


def test_what_is_saved_is_diffusers_own_and_loads_on_either_side(found: dict[str, Any]) -> None:
    assert found["files"] == ["config.json", "diffusion_pytorch_model.safetensors"]
    assert found["equal"]
    assert found["again"]
    assert found["own_keys"] == []


def test_upstreams_class_is_saved_whatever_the_wrapper_is_called(found: dict[str, Any]) -> None:
    assert found["renamed"] == CLASS


def test_the_config_is_back_after_a_save_that_fails(found: dict[str, Any]) -> None:
    assert found["failed"]
    assert found["config_back"]


def test_the_loss_is_the_mean_over_samples_of_their_errors(found: dict[str, Any]) -> None:
    assert found["loss"] == pytest.approx(found["mean"], rel=1e-6)
    assert found["without_targets"]


def test_checkpointing_runs_and_changes_no_gradient(found: dict[str, Any]) -> None:
    assert found["checkpoints"] > 0
    assert found["checkpointed"]


def test_blocks_that_must_not_be_split_are_there(found: dict[str, Any]) -> None:
    assert found["blocks"] == found["declared"] == ["WanTransformerBlock"]


@pytest.mark.parametrize("mixed", ["low features", "low weights"])
def test_features_and_weights_may_differ_in_precision(mixed: str, found: dict[str, Any]) -> None:
    assert found[mixed] == pytest.approx(found["float32"], rel=0.02)
