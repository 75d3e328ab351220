"""The level `train`: VeOmni's own trainer runs an integration as it is scaffolded, and planted mistakes are noticed."""

import importlib.util
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from omni_kit.isolation.worker import StepError
from omni_kit.parity import run_parity
from omni_kit.parity.case import Case
from omni_kit.parity.levels.train import Train
from omni_kit.parity.report.report import LevelResult
from omni_kit.patchgen import run_config
from omni_kit.scaffold import new_model
from omni_kit.targets.sides import ADAPTED, EMBEDDED, TrainingRun
from tests.conftest import first

_RUNS = ((EMBEDDED, ""), (ADAPTED, ""), ("again", ADAPTED))
REFERENCES = Path(__file__).parents[2] / "reference_models" / "veomni"
WAN, QWEN3_VL = REFERENCES / "wan", REFERENCES / "qwen3_vl"
needs_av = pytest.mark.skipif(importlib.util.find_spec("av") is None, reason="VeOmni's DiT trainer imports av")


def trained(package: Path) -> LevelResult:
    (found,) = run_parity(package, ["train"]).levels
    return found


def changed(package: Path, into: Path, file: str, right: str, wrong: str) -> Path:
    """A copy of an integration with a mistake."""
    place = into / package.name
    shutil.copytree(package, place, ignore=shutil.ignore_patterns("__pycache__"))
    text = (place / file).read_text(encoding="utf-8")
    assert right in text
    (place / file).write_text(text.replace(right, wrong), encoding="utf-8")
    return place


@pytest.fixture(scope="module")
def qwen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What new-model and patchgen make of a language model."""
    place = tmp_path_factory.mktemp("plugins")
    new_model("mine", "qwen3", target="veomni", into=place)
    run_config(place / "mine" / "mine_gpu_patch_gen_config.py")
    return place / "mine"


@pytest.mark.sweep
def test_a_scaffold_trains_resumes_and_exports(qwen: Path) -> None:
    found = trained(qwen)
    assert found.status == "pass", found.reason
    for tried in (
        "whole: 4 steps in 2",
        "export loaded and used",
        "resumed: 2 steps",
        "alone: 4 steps",
        "adapted: 4 steps",
        "adapter loaded",
        "adapted and resumed: 2 steps",
    ):
        assert tried in found.reason


@pytest.mark.sweep
def test_a_model_with_media_trains_on_the_pictures_of_its_maker() -> None:
    found = trained(QWEN3_VL)
    assert found.status == "pass", found.reason
    for tried in ("whole: 4 steps in 2", "export loaded and used", "resumed: 2 steps", "alone: 4 steps"):
        assert tried in found.reason


@pytest.mark.parametrize(("right", "wrong", "said"), first(1, [
    ("data_type: conversation\n  text_keys: messages\n", "data_type: diffusion\n", "parse_args refuses train.yaml"),
    ("  text_keys: messages\n", "  text_key: messages\n", "train.yaml: VeOmni has no data.text_key"),
]))  # fmt: skip
def test_a_training_file_that_veomni_refuses_or_ignores_fails(
    right: str, wrong: str, said: str, qwen: Path, tmp_path: Path
) -> None:
    found = trained(changed(qwen, tmp_path, "train.yaml", right, wrong))
    assert found.status == "fail"
    assert said in found.reason


@pytest.mark.sweep
def test_another_loss_than_upstreams_is_seen(qwen: Path, tmp_path: Path) -> None:
    modeling = "generated/patched_modeling_mine_gpu.py"
    found = trained(changed(qwen, tmp_path, modeling, "self.head_dim**-0.5", "self.head_dim**-0.4"))
    assert found.status == "fail"
    assert "whole, step 1: the loss is" in found.reason


def test_packing_with_an_attention_that_sees_across_samples_is_refused(qwen: Path, tmp_path: Path) -> None:
    modeling = "generated/patched_modeling_mine_gpu.py"
    found = trained(changed(qwen, tmp_path, modeling, "_supports_flash_attn = True", "_supports_flash_attn = False"))
    assert found.status == "fail"
    assert "eager attention sees across packed samples" in found.reason


def test_what_follows_a_run_that_did_not_end_is_not_tested() -> None:
    """As where a machine is too slow for one of the runs."""

    class Slow:
        """Both sides, of which the trainer's second run does not end."""

        def training_runs(self) -> tuple[list[TrainingRun], list[str]]:
            return [TrainingRun(name, "", [], 1, "", resumes=resumes) for name, resumes in _RUNS], []

        def run_trainer(self, run: TrainingRun) -> list[Path]:
            if run.name == ADAPTED:
                raise StepError("it did not finish")
            return []

    found = Train().judge(cast(Case, SimpleNamespace(pair=Slow())))
    assert found.untested == "adapted: it did not finish; again: it follows the run 'adapted', which did not end"
    assert not found.reason


@needs_av
@pytest.mark.sweep
def test_a_diffusion_transformer_trains_online_and_offline() -> None:
    found = trained(WAN)
    assert found.status == "pass", found.reason
    for tried in ("export loaded and used", "resumed", "conditions stored", "offline: 4 steps", "adapted and resumed"):
        assert tried in found.reason


@needs_av
@pytest.mark.sweep
@pytest.mark.parametrize(("file", "right", "wrong", "said"), [
    ("train.py", "self.condition_model.begin_step", "self.base.state.__dict__.get('x') or id", "resumed, step 3"),
    ("wan_transformer/configuration_wan_transformer.py", "_name_as_diffusers(place)\n\n\n", "place\n\n\n",
     "upstream cannot load the export"),
    ("wan_transformer/configuration_wan_transformer.py",
     'values |= {"_class_name": "WanTransformer3DModel"', 'values |= {"_class_name": "WanVACETransformer3DModel"',
     "whole: the export names another class: config.json: _class_name is 'WanVACETransformer3DModel'"),
])  # fmt: skip
def test_noise_that_is_lost_and_names_that_diffusers_does_not_know_are_seen(
    file: str, right: str, wrong: str, said: str, tmp_path: Path
) -> None:
    found = trained(changed(WAN, tmp_path, file, right, wrong))
    assert found.status == "fail"
    assert said in found.reason
