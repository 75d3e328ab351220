"""Which way a pipeline is served, by what its loop does; and what is left to a person, at its line."""

import json
from collections import Counter
from pathlib import Path

import pytest

from omni_checkers.engine.judge import judge
from omni_checkers.sglang_diffusion.rules.scaffold.unfinished import NothingIsUnfinished
from omni_kit.errors import BadInput, Refusal
from omni_kit.pysource.library import find_library
from omni_kit.scaffold import Scaffold, new_model, update
from omni_kit.targets.protocol import TODO_MARK
from omni_kit.targets.registry import get_target
from omni_kit.upstream.diffusers.classes import PIPELINES, class_names, is_diffusers_class, place_of
from omni_kit.upstream.diffusers.pipelines import find_pipeline
from tests.conftest import first

TARGET = "sglang-diffusion"
# Pipeline -> what a person read in its loop, or after it, that no stage of SGLang does.
NATIVE = {
    "StableDiffusion3PAGPipeline": "_apply_perturbed_attention_guidance",
    "LuminaPipeline": "torch.split",
    "SanaSprintPipeline": "steps by",
    "CogVideoXPipeline": "ends with latents[:, additional_frames:]",
    "Flux2Pipeline": "passes its denoiser latent_model_input",
    "HunyuanImagePipeline": "outside of a single loop",
}
# Pipeline, and what hybrid leaves to a person there: the file, and how the line begins.
LEFT_OPEN = [
    ("Flux2Pipeline", "pipeline_config.py", "Flux2Pipeline scales by statistics of its autoencoder"),
    ("HunyuanImagePipeline", "dit.py", "compute timestep_r here"),
    ("SanaSprintPipeline", "dit.py", "write how SanaSprintPipeline passes its denoiser a timestep"),
    ("AllegroPipeline", "pipeline_config.py", "AllegroPipeline ends with self.decode_latents(latents)"),
    ("StableDiffusion3PAGPipeline", "pipeline.py", "SGLang's DenoisingStage does not: makes"),
]


def scaffold(source: str, into: Path, kind: str | None = None, dry_run: bool = False) -> Scaffold:
    return new_model("served", source, target=TARGET, force=True, into=into, kind=kind, dry_run=dry_run)


@pytest.mark.parametrize("pipeline", first(3, NATIVE))
def test_a_loop_of_its_own_keeps_its_code_around_each_step(pipeline: str, tmp_path: Path) -> None:
    made = scaffold(pipeline, tmp_path)
    decided = [(decision.what, decision.choice) for decision in made.plan.decisions]
    reasons = [decision for decision in made.plan.decisions if decision.what == "SGLang's stages"]
    assert ("way", "native") in decided
    assert any(NATIVE[pipeline] in decision.reason for decision in reasons)
    assert all(".py:" in decision.evidence for decision in reasons)
    assert {change.path for change in made.changes} >= {"served/steps.py", "served/stages.py"}


def test_a_scheduler_that_lacks_what_sglang_asks_steps_in_a_stage_of_its_own(tmp_path: Path) -> None:
    named = {"_class_name": "PixArtAlphaPipeline", "transformer": ["diffusers", "PixArtTransformer2DModel"],
             "vae": ["diffusers", "AutoencoderKL"], "tokenizer": ["transformers", "T5Tokenizer"],
             "text_encoder": ["transformers", "T5EncoderModel"]}  # fmt: skip
    for scheduler, lacks in (("DDIMScheduler", True), ("DPMSolverMultistepScheduler", False)):
        index = {**named, "scheduler": ["diffusers", scheduler]}
        (tmp_path / "model_index.json").write_text(json.dumps(index), encoding="utf-8")
        decisions = scaffold(str(tmp_path), tmp_path / "into", dry_run=True).plan.decisions
        said = [one.reason for one in decisions if one.what == "SGLang's stages"]
        assert decisions[0].choice == "native"  # its own code sets the scheduler
        assert any("without set_begin_index" in one for one in said) is lacks


def test_what_fits_is_said_before_it_is_asked_for(tmp_path: Path) -> None:
    def modular(pipeline: str, kind: str | None = None) -> str:
        made = scaffold(pipeline, tmp_path, kind, dry_run=True)
        return next(f"{one.choice}: {one.reason}" for one in made.plan.decisions if one.what == "modular")

    assert modular("SanaPipeline", "native").startswith("fits, too")
    assert "passes its denoiser img_ids, which encode_prompt does not make" in modular("ChromaPipeline")


def published(pipeline: str, folder: Path, schedule: dict[str, bool] | None) -> Path:
    """A pipeline's directory without weights; `schedule` is its scheduler's config."""
    source = folder / "published"
    for name in ("scheduler", "transformer"):
        (source / name).mkdir(parents=True)
    read = find_pipeline(find_library("diffusers"), pipeline, {})
    index = {one.name: [one.library, one.class_name] for one in read.components if not one.optional}
    (source / "model_index.json").write_text(json.dumps({"_class_name": pipeline, **index}))
    (source / "transformer/config.json").write_text(json.dumps({"_class_name": read.denoiser.class_name}))
    if schedule is not None:
        (source / "scheduler/scheduler_config.json").write_text(json.dumps(schedule))
    return source


@pytest.mark.parametrize("shifts", [True, False, None])
def test_a_shift_that_a_checkpoint_may_ask_for_is_left_to_upstreams_code(shifts: bool | None, tmp_path: Path) -> None:
    schedule = None if shifts is None else {"use_dynamic_shifting": shifts}
    source = published("StableDiffusion3Pipeline", tmp_path, schedule)
    decisions = scaffold(str(source), tmp_path / "into", dry_run=True).plan.decisions
    said = next(one.reason for one in decisions if one.what == "modular")
    assert ("shifts its steps by mu" in said) is (shifts is not False)
    assert decisions[0].choice == ("modular" if shifts is False else "native")


def test_encoders_load_from_either_library(tmp_path: Path) -> None:
    scaffold("PRXPipeline", tmp_path)  # diffusers derives its encoder's class, so save_pretrained names diffusers
    loaders = (tmp_path / "served/loaders.py").read_text(encoding="utf-8")
    assert 'expected_library = ("diffusers", "transformers"' in loaders
    assert "getattr(diffusers, self.component_architecture)" in loaders


def test_modular_is_composed_of_sglangs_stages(tmp_path: Path) -> None:
    scaffold("WanPipeline", tmp_path, "modular")
    stages = (tmp_path / "served/pipeline.py").read_text(encoding="utf-8")
    config = (tmp_path / "served/pipeline_config.py").read_text(encoding="utf-8")
    for stage in ("latent_preparation", "timestep_preparation", "denoising", "decoding"):
        assert f"add_standard_{stage}_stage(" in stages
    assert "(batch.num_frames - 1) // self.vae_config.arch_config.scale_factor_temporal + 1," in config
    assert not (tmp_path / "served/recording.py").exists()


@pytest.mark.parametrize(("pipeline", "file", "said"), first(2, LEFT_OPEN))
def test_what_is_left_open_stands_at_its_line_and_is_reported(
    pipeline: str, file: str, said: str, tmp_path: Path
) -> None:
    made = scaffold(pipeline, tmp_path, "hybrid")
    left = [todo for todo in made.plan.todo if todo.path == f"served/{file}" and todo.what.startswith(said)]
    assert left
    for todo in made.plan.todo:
        line = (tmp_path / todo.path).read_text(encoding="utf-8").splitlines()[todo.line - 1]
        assert line.strip() == f"# {TODO_MARK}: {todo.what}"
    verdict = judge(tmp_path / "served", get_target(TARGET), [NothingIsUnfinished])["SGD601"]
    found = {(finding.path, finding.line) for finding in verdict.findings}
    assert found == {(tmp_path / todo.path, todo.line) for todo in made.plan.todo}


def test_hybrid_refuses_a_scheduler_that_sglang_cannot_drive(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match="steps by CogVideoXDDIMScheduler, without set_begin_index") as raised:
        scaffold("CogVideoXPipeline", tmp_path, "hybrid")
    assert "--kind native" in raised.value.hint


def test_a_call_that_asks_for_diffusers_scheduler_keeps_it(tmp_path: Path) -> None:
    scaffold("EasyAnimatePipeline", tmp_path)
    assert "same_steps = ()" in (tmp_path / "served/loaders.py").read_text(encoding="utf-8")


def test_arguments_that_no_request_carries_are_told_and_listed(tmp_path: Path) -> None:
    made = scaffold("Lumina2Pipeline", tmp_path)
    told = {one.choice for one in made.plan.decisions if one.what == "not served"}
    assert {"system_prompt", "cfg_trunc_ratio"} <= told
    assert not {"prompt", "guidance_scale", "height", "return_dict"} & told
    readme = (tmp_path / "served/README.md").read_text(encoding="utf-8")
    assert "| `cfg_trunc_ratio` | `1.0` |" in readme


@pytest.mark.parametrize("kind", first(1, ["native", "modular", "hybrid", "whole"]))
def test_encoders_compute_in_the_denoisers_precision_whatever_a_checkpoint_has(kind: str, tmp_path: Path) -> None:
    source = published("StableDiffusion3Pipeline", tmp_path, {"use_dynamic_shifting": False})
    for number in ("", "_2", "_3"):
        (source / f"text_encoder{number}").mkdir()
        (source / f"text_encoder{number}/config.json").write_text(json.dumps({"torch_dtype": "float32"}))
    scaffold(str(source), tmp_path, kind)
    config = " ".join((tmp_path / "served/pipeline_config.py").read_text(encoding="utf-8").split())
    assert config.count("text_encoder_precisions") == 1
    assert 'text_encoder_precisions: tuple[str, ...] = ( "bf16", "bf16", "bf16", )' in config
    assert config.count("EncoderConfig(),") == 3


@pytest.mark.parametrize(
    ("pipeline", "task", "images"),
    first(
        1,
        [
            ("FluxImg2ImgPipeline", "I2I", ["image"]),
            ("StableDiffusion3InpaintPipeline", "I2I", ["image", "mask_image"]),
            ("FluxKontextPipeline", "TI2I", ["image"]),
            ("WanImageToVideoPipeline", "I2V", ["image"]),
            ("LTXConditionPipeline", "T2V", ["image"]),
        ],
    ),
)
def test_images_of_a_request_become_arguments_in_order(
    pipeline: str, task: str, images: list[str], tmp_path: Path
) -> None:
    made = scaffold(pipeline, tmp_path)
    stages = (tmp_path / "served/stages.py").read_text(encoding="utf-8")
    config = (tmp_path / "served/pipeline_config.py").read_text(encoding="utf-8")
    assert ("way", "native") in [(decision.what, decision.choice) for decision in made.plan.decisions]
    assert f"task_type: ModelTaskType = ModelTaskType.{task}" in config
    assert all(f'"{name}"' in stages for name in images)
    assert ("supported_task_types" in config) is (pipeline == "LTXConditionPipeline")
    assert "images = " not in _stages_of("FluxPipeline", tmp_path / "plain")


def _stages_of(pipeline: str, into: Path) -> str:
    scaffold(pipeline, into)
    return (into / "served/stages.py").read_text(encoding="utf-8")


@pytest.mark.parametrize(("pipeline", "shares"), [("FluxPipeline", True), ("SanaPipeline", False)])
def test_devices_share_tokens_where_diffusers_has_a_plan(pipeline: str, shares: bool, tmp_path: Path) -> None:
    scaffold(pipeline, tmp_path)
    dit = (tmp_path / "served/dit.py").read_text(encoding="utf-8")
    config = (tmp_path / "served/pipeline_config.py").read_text(encoding="utf-8")
    assert ("USPAttention" in dit) is shares
    assert ('"sp_degree"' in config) is not shares


def test_a_way_that_cannot_be_read_at_all_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match="passes its denoiser a prompt in a way that could not be analysed"):
        scaffold("OmniGenPipeline", tmp_path, "hybrid")
    with pytest.raises(Refusal, match="steps in nested loops"):
        scaffold("LTXI2VLongMultiPromptPipeline", tmp_path, "native")
    assert not list(tmp_path.iterdir())


@pytest.mark.sweep
def test_every_pipeline_of_diffusers_is_scaffolded_or_refused_in_one_line(tmp_path: Path) -> None:
    library = find_library("diffusers")
    names = [name for name in class_names(library) if name.endswith("Pipeline") and is_diffusers_class(name, library)]
    outcome = {name: _outcome(name, tmp_path) for name in names if _is_whole(name)}
    counted = Counter(outcome.values())
    made = sum(counted[way] for way in ("modular", "native", "hybrid", "whole"))
    assert made >= 75
    assert counted["modular"] + counted["native"] >= 0.9 * made
    assert counted["hybrid, with to-dos"] == 0  # then native fits
    assert not [name for name, what in outcome.items() if "\n" in what]
    assert not [name for name, what in outcome.items() if "to-dos" in what]


def _is_whole(name: str) -> bool:
    place = place_of(find_library("diffusers"), name) or ""
    return place.startswith(f"{PIPELINES}/")


def _outcome(name: str, into: Path) -> str:
    try:
        made = scaffold(name, into, dry_run=True)
    except (BadInput, Refusal) as error:
        return error.message
    return f"{made.plan.decisions[0].choice}{', with to-dos' if made.plan.todo else ''}"


def test_an_update_keeps_the_way(tmp_path: Path) -> None:
    scaffold("WanPipeline", tmp_path, "modular")
    made = update(tmp_path / "served")
    assert made.ok
    assert {change.action for change in made.changes} == {"unchanged"}
