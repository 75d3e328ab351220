"""Conditions of a pipeline of sounds: its media and lengths, and noise levels of a scheduler that needs torchsde."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from omni_kit.scaffold import new_model
from tests.targets.veomni.dit.test_overfit_check import asked, changed

ROOT = Path(__file__).parents[4]
PROBE = "tests.targets.veomni.dit.audio_probe"


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a process found of Stable Audio; without torchsde a stand-in lets diffusers import the scheduler."""
    place = tmp_path_factory.mktemp("sounds")
    (place / "torchsde-0.2.6.dist-info").mkdir()
    (place / "torchsde-0.2.6.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: torchsde\nVersion: 0.2.6\n"
    )
    (place / "torchsde.py").write_text("")
    more = [] if importlib.util.find_spec("torchsde") else [str(place)]
    paths = os.pathsep.join([*filter(None, [os.environ.get("PYTHONPATH", "")]), *more])
    done = subprocess.run(
        [sys.executable, "-m", PROBE, str(place), str(place / "answers.json")], cwd=ROOT, capture_output=True,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": paths}, text=True, check=False,
    )  # fmt: skip
    assert (place / "answers.json").is_file(), done.stderr[-3000:]
    answered: dict[str, Any] = json.loads((place / "answers.json").read_text(encoding="utf-8"))
    return answered


@pytest.mark.sweep
def test_the_schedulers_own_step_ends_at_the_clean_latents(found: dict[str, Any]) -> None:
    """Of the drawn pairs of time and noise level, each with its target."""
    assert found["off"] < 1e-5
    assert found["steps"] > 10


@pytest.mark.sweep
def test_a_sound_is_as_long_as_the_pipeline_draws_it(found: dict[str, Any]) -> None:
    """Longer ones are cut, and shorter ones end in silence."""
    assert found["latents"] == [1, 8, 64]
    assert all(0.018 < one <= 0.032 for one in found["seconds"]), found["seconds"]


@pytest.mark.sweep
def test_the_conditions_of_sounds_are_compared(tmp_path: Path) -> None:
    """Of two lengths, next to what diffusers' pipeline passes its transformer for them."""
    new_model("sounds", "StableAudioDiTModel", target="veomni", into=tmp_path)
    assert asked(tmp_path / "sounds").status == "pass"
    file = tmp_path / "sounds" / "sounds_condition" / "modeling_sounds_condition.py"
    changed(file, "pixels.shape[-1] / self.vae.config.sampling_rate", "2 * pixels.shape[-1] / 44100")
    found = asked(tmp_path / "sounds")
    assert found.status == "fail"
    assert "differs from what the pipeline passes to its transformer" in found.reason
