"""The worked examples are exactly what new-model and patchgen make today."""

from pathlib import Path

import pytest

from omni_kit.patchgen import run_config
from omni_kit.resources import resource_dir
from omni_kit.scaffold import new_model
from tests.conftest import first

ROOT = resource_dir("reference_models") / "veomni"
SERVED = resource_dir("reference_models") / "sglang_diffusion"
PORTED = resource_dir("reference_models") / "diffusers"


def files(root: Path) -> dict[str, str]:
    found = (path for path in sorted(root.rglob("*")) if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(root).as_posix(): path.read_text(encoding="utf-8") for path in found}


@pytest.mark.parametrize(("name", "source"), [
    ("wan", "WanTransformer3DModel"), ("qwen_image", "QwenImageTransformer2DModel"),
])  # fmt: skip
def test_a_diffusion_model_made_again_is_what_is_committed(name: str, source: str, tmp_path: Path) -> None:
    new_model(name, source, target="veomni", into=tmp_path)
    committed, made = files(ROOT / name), files(tmp_path / name)
    assert made.keys() == committed.keys()
    for path in made:
        assert made[path] == committed[path], f"{path} differs: run `make reference` and look at the change"


@pytest.mark.parametrize("name", first(1, ["qwen3_moe", "qwen3_vl", "olmoe", "qwen2_5_omni_thinker"]))
def test_regenerating_gives_what_is_committed(name: str, tmp_path: Path) -> None:
    new_model(name, name, target="veomni", into=tmp_path)
    result = run_config(tmp_path / name / f"{name}_gpu_patch_gen_config.py")
    assert result.status == "written"
    committed, made = files(ROOT / name), files(tmp_path / name)
    assert made.keys() == committed.keys()
    for path in made:
        assert made[path] == committed[path], f"{path} differs: run `make reference` and look at the change"


@pytest.mark.parametrize(
    ("name", "pipeline", "way"), [("flux_t2i", "FluxPipeline", None), ("wan_t2v", "WanPipeline", "modular")]
)
def test_a_served_pipeline_is_what_is_made_today(name: str, pipeline: str, way: str | None, tmp_path: Path) -> None:
    new_model(name, pipeline, target="sglang-diffusion", force=True, into=tmp_path, kind=way)
    committed, made = files(SERVED / name), files(tmp_path / name)
    assert made == committed, "it differs: run `make reference` and look at the change"


def test_a_ported_model_is_what_is_made_today(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(PORTED.parents[1])  # what it was made from is named from there
    source = "reference_models/diffusers/_upstream/lumen::Lumen"
    new_model("lumen", source, target="diffusers", kind="both", into=tmp_path)
    committed, made = files(PORTED / "lumen"), files(tmp_path / "lumen")
    assert made == committed, "it differs: run `make reference` and look at the change"


def test_a_modular_pipeline_is_what_is_made_today(tmp_path: Path) -> None:
    new_model("wan_t2v_blocks", "WanPipeline", target="diffusers", kind="modular", into=tmp_path)
    committed, made = files(PORTED / "wan_t2v_blocks"), files(tmp_path / "wan_t2v_blocks")
    assert made == committed, "it differs: run `make reference` and look at the change"
