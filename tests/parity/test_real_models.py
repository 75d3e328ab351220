"""VeOmni's own models against upstream."""

import re
from pathlib import Path

import pytest
from safetensors.torch import load_file

from omni_kit.errors import BadInput
from omni_kit.parity import DEFAULT_LEVELS, ParityReport, run_parity
from omni_kit.parity.compare.tensors import FLOAT32_TOLERANCE
from omni_kit.parity.processes.workers import Sides
from tests.conftest import first, sampled

TEXT = ["qwen3_moe", "qwen3", "llama", "qwen2", "deepseek_v3", "deepseek_v4", "gpt_oss", "gemma3"]
PICTURES_AND_SOUND = ["qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen2_5_omni", "qwen3_omni_moe"]
# VeOmni has no converter from what upstream saves for these: it reads the names that upstream's model has in memory.
MERGED_ONLY = ["glm_moe_dsa", "qwen3_5_moe", "qwen2_vl", "qwen2_5vl"]


TRIED = {
    "keys": "tensors",
    "roundtrip": "tensors loaded and exported",
    "forward": "outputs, and how attention is called",
    "backward": "gradients",
    "scenarios": "scenarios",
}
"""What a level that passes counts in its reason."""


def compare(path: Path, sides: Sides, **options: object) -> ParityReport:
    return run_parity(path, **{"levels": DEFAULT_LEVELS, "sides": sides, **options})  # type: ignore[arg-type]


def assert_passes(report: ParityReport) -> None:
    assert [(level.level, level.status) for level in report.levels[1:]] == [
        (name, "pass") for name in DEFAULT_LEVELS[1:]
    ]
    for level in report.levels[1:]:
        counted = re.search(rf"(\d+) {TRIED[level.level]}", level.reason)
        assert counted is not None, (level.level, level.reason)
        assert int(counted[1]) > 0
    assert report.ok
    assert report.exit_code == 0


@pytest.mark.parametrize("model", sampled([*TEXT, *PICTURES_AND_SOUND], "qwen3_moe"))
def test_a_model_that_veomni_supports_passes_every_default_level(model: str, veomni_models: Path, sides: Sides) -> None:
    assert_passes(compare(veomni_models / model, sides))


@pytest.mark.parametrize("model", first(1, MERGED_ONLY))
def test_a_model_without_a_converter_passes_on_the_layout_that_it_reads(
    model: str, veomni_models: Path, sides: Sides
) -> None:
    assert_passes(compare(veomni_models / model, sides, layout="memory"))


@pytest.mark.parametrize("model", first(1, MERGED_ONLY))
def test_a_model_without_a_converter_for_what_upstream_saves_fails_the_round_trip(
    model: str, veomni_models: Path, sides: Sides
) -> None:
    report = compare(veomni_models / model, sides)

    assert report.level("keys").status == "fail"
    assert report.level("roundtrip").status == "fail"
    assert "(not the values of the checkpoint: it was never loaded)" in report.level("roundtrip").reason
    assert report.level("forward").status == "fail"
    assert report.exit_code == 1
    assert any("--layout memory" in note for note in report.notes)


def test_a_kernel_that_was_stood_in_for_is_said(veomni_models: Path, sides: Sides) -> None:
    notes = " ".join(compare(veomni_models / "qwen3_5", sides, levels=["forward"]).notes)

    assert "causal_conv1d" in notes
    assert "chunk_gated_delta_rule" in notes
    assert not compare(veomni_models / "qwen3", sides, levels=["forward"]).notes


def test_pictures_films_and_sound_reach_the_model(veomni_models: Path, sides: Sides, tmp_path: Path) -> None:
    compare(veomni_models / "qwen3_omni_moe", sides, levels=["backward"], work_dir=tmp_path)

    gradients = load_file(tmp_path / "candidate" / "gradients.safetensors")
    for tower in ("thinker.visual.patch_embed.proj.weight", "thinker.audio_tower.conv2d1.weight"):
        assert bool(gradients[tower].any())
    inputs = load_file(tmp_path / "inputs.safetensors")
    assert {"pixel_values", "pixel_values_videos", "input_features"} <= set(inputs)


@pytest.mark.sweep
def test_the_figures_of_a_passing_model_are_within_the_stated_tolerance(veomni_models: Path, sides: Sides) -> None:
    report = compare(veomni_models / "qwen3_moe", sides)

    for name in ("forward", "backward"):
        level = report.level(name)
        assert level.max_rel is not None
        assert level.tolerance is not None
        assert FLOAT32_TOLERANCE <= level.tolerance < 4 * FLOAT32_TOLERANCE  # some processors round less evenly
        assert 0.0 <= level.max_rel <= FLOAT32_TOLERANCE
    assert report.level("roundtrip").max_abs == 0.0
    assert report.model_type == "qwen3_moe"


def test_a_missing_package_is_an_error_of_the_environment(veomni_models: Path, sides: Sides) -> None:
    """The GPU modeling of seed_oss imports a kernel library that a CPU does not have."""
    if _has("liger_kernel"):
        pytest.fail("liger_kernel is installed: this test needs an environment without it")
    report = compare(veomni_models / "seed_oss", sides)

    assert report.level("import").status == "pass"
    assert report.level("keys").status == "error"
    assert "liger_kernel" in report.level("keys").reason
    assert report.exit_code == 3


def _has(package: str) -> bool:
    import importlib.util

    return importlib.util.find_spec(package) is not None


def test_only_the_levels_that_were_asked_for_are_reported(veomni_models: Path, sides: Sides) -> None:
    report = compare(veomni_models / "llama", sides, levels=["forward", "import"])

    assert [level.level for level in report.levels] == ["import", "forward"]
    assert report.ok


def test_a_level_that_cannot_be_run_is_not_a_pass(veomni_models: Path, sides: Sides) -> None:
    report = compare(veomni_models / "llama", sides, levels=["keys", "ep"])

    assert report.level("keys").status == "pass"
    assert report.level("ep").status == "skip"
    assert report.level("ep").reason
    assert not report.ok
    assert report.exit_code == 3


def test_evidence_is_kept_where_it_was_asked_for(veomni_models: Path, sides: Sides, tmp_path: Path) -> None:
    report = compare(veomni_models / "llama", sides, work_dir=tmp_path / "evidence")

    kept = {path.relative_to(tmp_path / "evidence").as_posix() for path in (tmp_path / "evidence").rglob("*")}
    assert report.work_dir == str(tmp_path / "evidence")
    assert {
        "checkpoint/model.safetensors.index.json",
        "state.safetensors",
        "inputs.safetensors",
        "reference/outputs.safetensors",
        "candidate/gradients.safetensors",
    } <= kept


def test_a_second_run_replaces_the_evidence_of_the_first(veomni_models: Path, sides: Sides, tmp_path: Path) -> None:
    compare(veomni_models / "qwen3_moe", sides, work_dir=tmp_path / "evidence", levels=["keys", "roundtrip"])
    compare(veomni_models / "llama", sides, work_dir=tmp_path / "evidence", levels=["keys"])

    config = (tmp_path / "evidence" / "checkpoint" / "config.json").read_text(encoding="utf-8")
    assert '"model_type": "llama"' in config
    assert not (tmp_path / "evidence" / "candidate").exists()


def test_a_directory_with_other_files_is_refused_and_left_alone(
    veomni_models: Path, sides: Sides, tmp_path: Path
) -> None:
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint" / "mine.txt").touch()

    with pytest.raises(BadInput, match="not from a parity run"):
        compare(veomni_models / "llama", sides, work_dir=tmp_path)

    assert (tmp_path / "checkpoint" / "mine.txt").exists()
