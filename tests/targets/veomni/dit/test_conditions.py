"""Models of conditions on tiny pipelines of real components: what they hand on trains, and is what pipelines mean."""

import json
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from omni_kit.scaffold import new_model
from tests.diffusers_pipelines import PIPELINES, save
from tests.forked import run_module

PROBE = "tests.targets.veomni.dit.conditions_probe"
# Of pictures and of films; the sweep goes over the others.
QUICK = ("flux", "wan")
OTHERS = tuple(name for name in PIPELINES if name not in QUICK)
NAMES = [*QUICK, *(pytest.param(name, marks=pytest.mark.sweep) for name in OTHERS)]
Found = Callable[[str], dict[str, Any]]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Found:
    """What was found of a pipeline: by one process for those of every run, and by another for the others."""

    @cache
    def probed(names: tuple[str, ...]) -> dict[str, Any]:
        place = tmp_path_factory.mktemp("conditions")
        for name in names:
            new_model(name, str(save(name, place / "pipelines" / name)), target="veomni", into=place / "packages")
        answers = place / "answers.json"
        run_module(PROBE, place / "pipelines", place / "packages", answers, *names, diffusion=True)
        answered: dict[str, Any] = json.loads(answers.read_text(encoding="utf-8"))
        return answered

    return lambda name: probed(QUICK if name in QUICK else OTHERS)[name]


@pytest.mark.parametrize("name", NAMES)
def test_training_on_what_is_handed_on_lowers_the_loss(name: str, found: Found) -> None:
    losses = found(name)["losses"]
    assert losses[-1] < 0.9 * losses[0]


@pytest.mark.parametrize("name", NAMES)
def test_every_key_is_an_argument_of_forward_with_a_value_for_each_sample(name: str, found: Found) -> None:
    assert set(found(name)["keys"]) <= set(found(name)["forward"])
    assert {"training_target", "latents"} < set(found(name)["keys"])
    assert found(name)["lengths"] == [2]


@pytest.mark.parametrize("name", NAMES)
def test_latents_are_scaled_and_packed_as_the_pipeline_undoes_it(name: str, found: Found) -> None:
    assert found(name)["decoded"] < 1e-5


@pytest.mark.parametrize("name", NAMES)
def test_a_pipeline_draws_with_the_saved_transformer_what_was_trained(name: str, found: Found) -> None:
    assert found(name)["drawn"]["reloaded"] == 0.0
    assert found(name)["drawn"]["untrained"] > 0.0


@pytest.mark.parametrize("name", NAMES)
def test_conditions_that_are_there_need_no_encoders(name: str, found: Found) -> None:
    assert found(name)["encoders_without_pipeline"] == []
    assert found(name)["later"] == found(name)["keys"]
    assert found(name)["trains"] == []


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", ["epsilon", "v_prediction", "sample"])
def test_without_flow_noise_and_targets_are_those_of_diffusers_scheduler(name: str, kind: str, found: Found) -> None:
    assert found(name)["other_targets"][kind] < 1e-5
