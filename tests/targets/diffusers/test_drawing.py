"""A ported pipeline beside its authors' own loop: the same noise comes to the same latents, and mistakes are seen."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from omni_kit.errors import BadInput
from omni_kit.parity import run_parity
from omni_kit.parity.processes.workers import Sides
from omni_kit.scaffold import new_model
from omni_kit.targets.diffusers.transformer.drawing import DrawingHandler, find_drawing
from tests.conftest import first

from .test_new_model import DOVE

EXAMPLE = Path(__file__).parents[3] / "reference_models" / "diffusers" / "lumen"
LUMEN = f"{EXAMPLE.parent / '_upstream' / 'lumen'}::Lumen"
PIPELINE = "pipeline_lumen.py"


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sides]:
    with Sides(tmp_path_factory.mktemp("sides")) as both:
        yield both


def test_noise_comes_to_the_authors_latents_and_planted_mistakes_are_located(sides: Sides) -> None:
    report = run_parity(EXAMPLE / PIPELINE, ("stages",), prove=True, sides=sides)
    assert report.ok, report.levels
    assert report.prove is not None
    assert {fault.kind for fault in report.prove.planted} == {
        "guidance-formula", "sigma-shift", "prompt-and-negative-swapped", "timestep-unit", "latents-scale",
        "batch-expansion", "latents-scaling-left-out", "latents-scaling-turned", "latents-shift-left-out",
    }  # fmt: skip
    assert report.prove.detected == report.prove.located == report.prove.faults


@pytest.mark.parametrize(("name", "right", "wrong", "stage"), first(0, [
    ("lamp", "timestep=timestep", "timestep=1 - timestep", "step 0 time"),
    ("torch_light", "(noise_pred, t, latents,", "(-noise_pred, t, latents,", "step 1 latents"),
    ("candle", "embeds.repeat_interleave(num_images_per_prompt, dim=0)", "embeds.repeat(num_images_per_prompt, 1, 1)",
     "2 prompts: step 1 latents"),
    ("wick", "latents / self.vae.config.scaling_factor", "latents", "decoded: final latents"),
]))  # fmt: skip
def test_a_wrong_step_is_found_where_it_begins(
    name: str, right: str, wrong: str, stage: str, tmp_path: Path, sides: Sides
) -> None:
    new_model(name, LUMEN, target="diffusers", into=tmp_path)
    file = tmp_path / name / f"pipeline_{name}.py"
    text = file.read_text(encoding="utf-8")
    assert right in text
    file.write_text(text.replace(right, wrong), encoding="utf-8")
    report = run_parity(file, ("stages",), sides=sides)
    assert not report.ok
    assert stage in " ".join(level.reason for level in report.levels)


@pytest.mark.sweep
def test_what_a_pipeline_cannot_make_of_stand_ins_is_said(tmp_path: Path, sides: Sides) -> None:
    new_model("beacon", LUMEN, target="diffusers", into=tmp_path)
    file = tmp_path / "beacon" / "pipeline_beacon.py"
    text = file.read_text(encoding="utf-8")
    text = text.replace("attention_mask=mask)[0]", "attention_mask=mask)[0][:, 1:]").replace(
        "vae: AutoencoderKL", "vae"
    )
    file.write_text(text, encoding="utf-8")
    report = run_parity(file, ("stages",), sides=sides)
    assert report.ok, report.levels
    assert any("its encoding changes them" in note for note in report.notes)
    assert any("not decoded" in note for note in report.notes)


def test_how_authors_sample_must_be_said(tmp_path: Path) -> None:
    shutil.copytree(EXAMPLE, tmp_path / "lumen")
    (tmp_path / "lumen" / "authors_sampling.py").unlink()
    with pytest.raises(BadInput, match=r"has no authors_sampling.py"):
        DrawingHandler().candidate(tmp_path / "lumen" / PIPELINE)


@pytest.mark.parametrize("name", ["conversion.py", "README.md"])
def test_other_files_are_no_pipelines(name: str) -> None:
    with pytest.raises(BadInput):
        find_drawing(EXAMPLE / name)


BENT = """

POWER = 2.0


def bent(s, power):
    return s**power


def levels(num_steps, power=POWER):
    return bent(torch.linspace(1, 0, num_steps + 1), power)


@torch.no_grad()
def sample(model, noise, steps, context, empty, cfg=4.0):
    sigmas = levels(steps, power=1.5)
    x = noise
    for now, later in zip(sigmas[:-1], sigmas[1:]):
        t = now.repeat(len(x))
        a, b = model(x, t, context), model(x, t, empty)
        x = x + (later - now) * (b + cfg * (a - b))
    return x
"""


def test_a_schedule_that_no_shift_gives_is_copied_and_given_to_the_scheduler(tmp_path: Path, sides: Sides) -> None:
    (tmp_path / "dove.py").write_text(DOVE + BENT, encoding="utf-8")
    made = new_model("bent_net", f"{tmp_path / 'dove.py'}::Dove", target="diffusers", into=tmp_path)
    assert any("those of levels" in one.reason for one in made.plan.decisions)
    assert not any("sigmas" in todo.what for todo in made.plan.todo)
    file = tmp_path / "bent_net" / "pipeline_bent_net.py"
    text = file.read_text(encoding="utf-8")
    assert "levels(num_steps=num_inference_steps, power=1.5)" in text
    assert run_parity(file, ("stages",), sides=sides).ok
    shutil.copytree(tmp_path / "bent_net", tmp_path / "bent_wrong")
    wrong = tmp_path / "bent_wrong" / "pipeline_bent_wrong.py"
    (tmp_path / "bent_wrong" / file.name).rename(wrong)
    wrong.write_text(text.replace("power=1.5", "power=1.4"), encoding="utf-8")
    assert not run_parity(wrong, ("stages",), sides=sides).ok
