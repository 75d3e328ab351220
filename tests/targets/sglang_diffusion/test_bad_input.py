"""What cannot be meant is one line with exit code 2, and nothing is written."""

import json
from pathlib import Path

import pytest

from omni_kit.scaffold import new_model
from tests.conftest import run_cli

from .test_plan import checkout

_INDEX = {
    "_class_name": "SanaPipeline",
    "scheduler": ["diffusers", "FlowMatchEulerDiscreteScheduler"],
    "text_encoder": ["transformers", "Gemma2Model"],
    "tokenizer": ["transformers", "GemmaTokenizerFast"],
    "transformer": ["diffusers", "SanaTransformer2DModel"],
    "vae": ["diffusers", "AutoencoderDC"],
}


def index(place: Path, **changed: object) -> str:
    values = {name: value for name, value in {**_INDEX, **changed}.items() if value is not None}
    place.mkdir(exist_ok=True)
    (place / "model_index.json").write_text(json.dumps(values), encoding="utf-8")
    return str(place)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"transformer": ["diffusers", "SanaTransformer4DModel"]}, "SanaTransformer4DModel"),
        ({"vae": ["diffusers", "AutoencoderOfTomorrow"]}, "AutoencoderOfTomorrow"),
        ({"_class_name": None}, "_class_name"),
        ({"_class_name": "SanaPipelineOfTomorrow"}, "SanaPipelineOfTomorrow"),
        ({"_class_name": 7}, "_class_name"),
    ],
)
def test_an_index_that_means_nothing(changed: dict[str, object], said: str, tmp_path: Path) -> None:
    source, into = index(tmp_path / "source", **changed), tmp_path / "into"
    code, out = _refused(source, into)
    assert code == 2
    assert said in out
    assert not into.exists()


def test_a_checkout_with_that_pipeline_and_one_of_another_version(tmp_path: Path) -> None:
    own = checkout(tmp_path / "known") / "runtime/pipelines/sana.py"
    own.write_text("class P:\n    pipeline_name = 'SanaPipeline'\n\n\nEntryClass = P\n")
    (checkout(tmp_path / "other") / "registry.py").write_text("register_configs = None\n")
    for place, said in (("known", "pipeline_name 'SanaPipeline' already"), ("other", "another version of SGLang")):
        before = sorted((tmp_path / place).rglob("*"))
        code, out = _refused("SanaPipeline", tmp_path / place, "--style", "in-tree")
        assert (code, said in out) == (2, True), out
        assert sorted((tmp_path / place).rglob("*")) == before


def test_a_way_that_does_not_fit_is_a_refusal(tmp_path: Path) -> None:
    code, out = _refused("ChromaPipeline", tmp_path / "into", "--kind", "modular")
    assert code == 1
    assert "passes its denoiser img_ids, which encode_prompt does not make" in out
    assert not (tmp_path / "into").exists()


@pytest.mark.parametrize(("embeds", "choice"), [(True, "told"), (False, "none")])
def test_what_a_config_says_of_distillation(embeds: bool, choice: str, tmp_path: Path) -> None:
    (tmp_path / "transformer").mkdir()
    config = {"_class_name": "FluxTransformer2DModel", "guidance_embeds": embeds}
    (tmp_path / "transformer" / "config.json").write_text(json.dumps(config), encoding="utf-8")
    parts = {"_class_name": "FluxPipeline", "transformer": ["diffusers", "FluxTransformer2DModel"],
             "vae": ["diffusers", "AutoencoderKL"], "text_encoder": ["transformers", "CLIPTextModel"],
             "tokenizer_2": ["transformers", "T5TokenizerFast"], "text_encoder_2": ["transformers", "T5EncoderModel"],
             "tokenizer": ["transformers", "CLIPTokenizer"]}  # fmt: skip
    made = new_model(
        "served", index(tmp_path, **parts), target="sglang-diffusion", force=True, into=tmp_path / "p", dry_run=True
    )
    decided = {one.what: one for one in made.plan.decisions}
    assert decided["embedded guidance"].choice == choice
    assert decided["embedded guidance"].evidence == "transformer/config.json: guidance_embeds"
    assert ("steps" in decided) == (not embeds)


def _refused(source: str, into: Path, *options: str) -> tuple[int, str]:
    code, data = run_cli(
        "new-model", "served", "--from", source, "--target", "sglang-diffusion", "--into", str(into), *options
    )
    said = str(data.get("error") or data["notes"][0])
    assert "\n" not in said
    return code, said
