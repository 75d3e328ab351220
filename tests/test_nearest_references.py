"""The reference models to read first: by model, by kind, by traits; and what inspect prints of them."""

from pathlib import Path

import pytest

from omni_kit.cli import main
from omni_kit.examples import find_example
from omni_kit.inspection import inspect
from omni_kit.nearest_references import nearest
from omni_kit.upstream.subject import open_source


@pytest.mark.parametrize(
    ("source", "first"),
    [
        ("olmoe", "veomni/olmoe"),
        ("qwen3_moe", "veomni/qwen3_moe"),
        ("WanTransformer3DModel", "veomni/wan"),
        ("FluxPipeline", "sglang_diffusion/flux_t2i"),
        ("QwenImageTransformer2DModel", "veomni/qwen_image"),
    ],
)
def test_a_model_with_a_reference_of_its_own_is_nearest_to_it(source: str, first: str) -> None:
    found = nearest(open_source(source))
    assert found[0].name == first
    assert not found[0].missing
    assert find_example(found[0].name).path.is_dir()


@pytest.mark.parametrize("source", ["qwen3", "bert"])
def test_a_kind_without_a_reference_gets_those_of_its_targets_other_kinds(source: str) -> None:
    assert {one.kind for one in nearest(open_source(source))} <= {"moe", "vlm", "omni"}


def test_pictures_come_before_what_has_none() -> None:
    assert nearest(open_source("llava"))[0].name == "veomni/qwen3_vl"


def test_what_lies_in_the_working_directory_has_no_part_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "olmoe").mkdir()
    monkeypatch.chdir(tmp_path)
    assert nearest(open_source("transformers:olmoe"))[0].name == "veomni/olmoe"
    lumen = next(one for one in nearest(open_source("FluxTransformer2DModel")) if one.name == "diffusers/lumen")
    assert lumen.shared


def test_shared_and_missing_traits_are_those_of_the_model() -> None:
    answer = inspect("gpt_oss")
    assert answer["nearest_reference"] == answer["nearest"][0]["path"]
    assert answer["nearest"][0]["shared"] == ["moe"]
    assert "attention-sinks" in answer["nearest"][0]["missing"]


def test_inspect_prints_the_command_that_reads_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", "qwen3"]) == 0
    assert "read it with: omni-kit reference show veomni/" in capsys.readouterr().out


def test_a_target_without_sites_shows_no_empty_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", "FluxPipeline"]) == 0
    shown = capsys.readouterr().out.partition("sglang-diffusion: ")[2]
    assert shown.splitlines()[1] == "no sites to patch"
    assert "decision" in shown.partition("veomni: ")[2]
