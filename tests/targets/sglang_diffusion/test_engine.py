"""Scaffolds run by SGLang's own engine on a CPU, stage by stage beside diffusers: `make test-sglang`."""

import importlib.util
import shutil
from pathlib import Path

import pytest

from omni_kit.parity import run_parity
from omni_kit.resources import resource_dir
from omni_kit.scaffold import new_model
from tests.diffusers_pipelines import PIPELINES, save

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("sglang") is None, reason="needs SGLang, in an environment of its own: make test-sglang"
)
EXAMPLES = resource_dir("reference_models") / "sglang_diffusion"
# What goes wrong when a person changes a scaffold -> the file, what stands there, what stands there then, and the stage
# that the report must name.
FAULTS = {
    "scale and shift swapped": (
        "flux", "pipeline_config.py", "return arch.scaling_factor, arch.shift_factor",
        "return arch.shift_factor, arch.scaling_factor", "picture",
    ),
    "scale inverse": ("sana", "pipeline_config.py", "return arch.scaling_factor, None",
                      "return 1 / arch.scaling_factor, None", "picture"),
    "answers swapped": ("z_image", "stages.py", "[_joined([answers.pop(0)", "[_joined([answers.pop()", "step 0 guided"),
    "prompt and negative swapped": (
        "sana", "recording.py", "map(_conditions, halves)", "map(_conditions, reversed(halves))",
        "positive encoder_attention_mask",
    ),
    "guidance applied twice": (
        "z_image", "pipeline_config.py", "return guidance_scale + 1", "return (guidance_scale + 1) ** 2",
        "step 0 guided",
    ),
    "a condition dropped": (
        "sana", "before_denoising.py", "    return {names.get",
        '    conditions.pop("encoder_attention_mask", None)\n    return {names.get', "positive encoder_attention_mask",
    ),
    "steps of another unit": ("sd3", "dit.py", "    return step\n", "    return step / 1000\n", ""),
    "one sigma off": (
        "sd3", "before_denoising.py", "batch.timesteps = recording.scheduler.timesteps",
        "recording.scheduler.sigmas = recording.scheduler.sigmas.roll(1)\n"
        "        batch.timesteps = recording.scheduler.timesteps", "sigmas",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Each tiny pipeline, and the plugin that serves it, as they are."""
    root = tmp_path_factory.mktemp("served")
    for name in PIPELINES:
        checkpoint = save(name, root / "checkpoints" / name)
        new_model(f"served_{name}", str(checkpoint), target="sglang-diffusion", force=True, into=root / "plugins")
    return {name: root / "plugins" / f"served_{name}" for name in PIPELINES}


@pytest.mark.parametrize("name", PIPELINES)
def test_a_scaffold_runs_without_an_edit_and_gives_what_diffusers_gives(name: str, served: dict[str, Path]) -> None:
    report = run_parity(served[name])
    assert report.ok, [(level.level, level.status, level.reason) for level in report.levels]
    assert "answers in 4 scenarios; pictures: PSNR" in report.level("stages").reason
    assert any(f"transformer: served_{name}.dit." in note for note in report.notes)
    assert any("attention was called" in note and "times by torch_sdpa" in note for note in report.notes)
    assert len(report.images) == 4


@pytest.mark.parametrize(
    ("way", "name"),
    [("hybrid", "sana"), ("hybrid", "flux"), ("native", "sd3"), ("native", "wan"), ("whole", "flux"), ("whole", "wan")],
)
def test_other_ways_give_the_same(way: str, name: str, served: dict[str, Path], tmp_path: Path) -> None:
    checkpoint = served[name].parents[1] / "checkpoints" / name
    new_model(f"{way}_{name}", str(checkpoint), target="sglang-diffusion", force=True, into=tmp_path, kind=way)
    report = run_parity(tmp_path / f"{way}_{name}")
    assert report.ok, [(level.level, level.status, level.reason) for level in report.levels]
    assert "answers in 4 scenarios; pictures: PSNR" in report.level("stages").reason


@pytest.mark.parametrize(("example", "name"), [("flux_t2i", "flux"), ("wan_t2v", "wan")])
def test_the_worked_examples_run_as_they_are(example: str, name: str, served: dict[str, Path], tmp_path: Path) -> None:
    plugin = tmp_path / example
    shutil.copytree(EXAMPLES / example, plugin, ignore=shutil.ignore_patterns("__pycache__"))
    report = run_parity(plugin, checkpoint=served[name].parents[1] / "checkpoints" / name)
    assert report.ok, [(level.level, level.status, level.reason) for level in report.levels]
    assert "answers in 4 scenarios; pictures: PSNR" in report.level("stages").reason


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found_at_its_stage(fault: str, served: dict[str, Path], tmp_path: Path) -> None:
    name, file, old, new, stage = FAULTS[fault]
    checkpoint = served[name].parents[1] / "checkpoints" / name
    kind = "native" if file == "stages.py" else "hybrid"
    new_model(f"faulty_{name}", str(checkpoint), target="sglang-diffusion", force=True, into=tmp_path, kind=kind)
    plugin = tmp_path / f"faulty_{name}"
    text = (plugin / file).read_text(encoding="utf-8")
    assert old in text
    (plugin / file).write_text(text.replace(old, new), encoding="utf-8")
    report = run_parity(plugin)
    found = report.level("stages")
    if stage:
        assert found.status == "fail"
        assert f": {stage} (" in found.reason
    else:  # the scaffold itself notices, and says what to do
        assert "finish _step" in report.level("forward").reason


@pytest.mark.parametrize("name", ["flux", "wan", "z_image"])
def test_planted_faults_are_seen_and_located(name: str, served: dict[str, Path]) -> None:
    proof = run_parity(served[name], ["stages"], prove=True).prove
    assert proof is not None
    kinds = {one.kind.partition(":")[0] for one in proof.planted}
    assert kinds >= {"sigma-off-by-one", "timestep-dtype", "timestep-unit", "guidance-twice",
                     "prompt-and-negative-swapped"}  # fmt: skip
    assert not proof.missed
    assert proof.located >= 0.9 * proof.faults, proof.mislocated


@pytest.mark.parametrize("pipeline", ["FluxPipeline", "WanPipeline"])
def test_several_processes_make_the_pictures_of_one(pipeline: str, tmp_path: Path) -> None:
    """Tokens are shared by 2 and 4, guidance by 2."""
    new_model("shared", pipeline, target="sglang-diffusion", force=True, into=tmp_path)
    found = run_parity(tmp_path / "shared", ["sp"]).level("sp")
    assert found.status == "pass", found.reason
    assert "ulysses=2, ulysses=4, sp=2, guidance=2 as one process" in found.reason


@pytest.mark.parametrize("pipeline", ["LTXPipeline", "FluxImg2ImgPipeline", "FluxKontextPipeline"])
def test_a_class_alone_is_enough(pipeline: str, tmp_path: Path) -> None:
    """Upstream's process makes a small pipeline of the class, and images where it starts from some."""
    new_model("alone", pipeline, target="sglang-diffusion", force=True, into=tmp_path)
    report = run_parity(tmp_path / "alone")
    assert report.ok, [(level.level, level.status, level.reason) for level in report.levels]


def test_distilled_checkpoints_are_others(tmp_path: Path) -> None:
    """Where the level is named, each switch that tells them apart is turned."""
    new_model("distilled", "FluxPipeline", target="sglang-diffusion", force=True, into=tmp_path)
    report = run_parity(tmp_path / "distilled", ["stages"])
    assert report.ok, report.level("stages").reason
    found = {one.name: one.status for one in report.level("stages").scenarios}
    assert found["guidance_embeds=True"] == found["use_dynamic_shifting=True"] == "pass"
