"""Models and pipelines of diffusers, opened at the same door as those of transformers."""

import json
from pathlib import Path
from typing import Any

import pytest

from omni_kit.errors import BadInput
from omni_kit.pysource.library import find_library
from omni_kit.upstream.diffusers.classes import is_diffusers_class, place_of
from omni_kit.upstream.kinds import Kind
from omni_kit.upstream.subject import open_source
from tests.conftest import run_cli
from tests.diffusers_models import WAN, save

INDEX = {
    "_class_name": "WanPipeline",
    "_diffusers_version": "0.37.0",
    "scheduler": ["diffusers", "UniPCMultistepScheduler"],
    "text_encoder": ["transformers", "UMT5EncoderModel"],
    "tokenizer": ["transformers", "T5TokenizerFast"],
    "transformer": ["diffusers", "WanTransformer3DModel"],
    "vae": ["diffusers", "AutoencoderKLWan"],
    "transformer_2": [None, None],
}


def index_of(place: Path, **changes: Any) -> Path:
    """A directory with a model_index.json."""
    place.mkdir(exist_ok=True)
    values = {name: value for name, value in {**INDEX, **changes}.items() if value is not None}
    (place / "model_index.json").write_text(json.dumps(values), encoding="utf-8")
    return place


@pytest.mark.parametrize(
    ("name", "subject", "kind"),
    [
        ("WanTransformer3DModel", "WanTransformer3DModel", Kind.dit),
        ("diffusers:WanTransformer3DModel", "WanTransformer3DModel", Kind.dit),
        ("QwenImageTransformer2DModel", "QwenImageTransformer2DModel", Kind.dit),
        ("FluxPipeline", "FluxTransformer2DModel", Kind.dit),
        ("diffusers:Lumina2Pipeline", "Lumina2Transformer2DModel", Kind.dit),
        ("WanModularPipeline", "WanModularPipeline", Kind.modular),
    ],
)
def test_a_class_is_told_by_where_it_stands(name: str, subject: str, kind: Kind) -> None:
    found = open_source(name)
    assert (found.name, found.kind, found.library.name) == (subject, kind, "diffusers")
    assert place_of(find_library("diffusers"), subject) is not None


def test_a_pipeline_is_its_denoiser_with_the_others_beside_it(tmp_path: Path) -> None:
    root = index_of(tmp_path)
    save("WanTransformer3DModel", root / "transformer", WAN)
    found = open_source(str(root))
    assert (found.name, found.kind) == ("WanTransformer3DModel", Kind.dit)
    assert found.values["ffn_dim"] == WAN["ffn_dim"]
    assert found.weights == found.directory == root / "transformer"
    roles = {component.name: component.role for component in found.profile.components}
    assert roles == {
        "transformer": "denoiser", "scheduler": "scheduler", "text_encoder": "encoder", "tokenizer": "tokenizer",
        "vae": "autoencoder",
    }  # fmt: skip
    assert found.notes == ()


def test_an_index_alone_is_enough(tmp_path: Path) -> None:
    found = open_source(str(index_of(tmp_path) / "model_index.json"))
    assert (found.name, found.weights, dict(found.values)) == ("WanTransformer3DModel", None, {})


def test_of_several_denoisers_the_first_to_run_is_taken_and_the_others_are_said(tmp_path: Path) -> None:
    both = index_of(tmp_path, transformer_2=["diffusers", "WanTransformer3DModel"])
    found = open_source(str(both))
    assert found.pipeline is not None
    assert found.pipeline.denoiser.name == "transformer"
    assert found.notes == ("WanPipeline also has transformer_2, another denoiser: pass its directory to read that one",)


def test_a_part_that_the_pipeline_asks_for_and_the_index_lacks_is_said(tmp_path: Path) -> None:
    assert open_source(str(index_of(tmp_path, vae=None))).notes == (
        "WanPipeline asks for vae, which model_index.json leaves out",
    )


def test_components_are_those_of_the_real_library(tmp_path: Path) -> None:
    """Saved by diffusers' own pipeline, with two parts left out."""
    from diffusers import AutoencoderKLWan, FlowMatchEulerDiscreteScheduler, WanPipeline, WanTransformer3DModel

    vae = AutoencoderKLWan(base_dim=8, z_dim=4, dim_mult=[1, 1], num_res_blocks=1, temperal_downsample=[False])
    WanPipeline(
        None, None, vae, FlowMatchEulerDiscreteScheduler(), transformer=WanTransformer3DModel(**WAN)
    ).save_pretrained(tmp_path)
    found = open_source(str(tmp_path))
    named = {component.name: component.class_name for component in found.profile.components}
    assert named == {
        "transformer": "WanTransformer3DModel", "scheduler": "FlowMatchEulerDiscreteScheduler",
        "vae": "AutoencoderKLWan",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"transformer": None}, "WanPipeline has no denoiser among its components"),
        ({"transformer": ["diffusers", "WanTransformer9DModel"]}, "transformer is of class WanTransformer9DModel"),
        ({"vae": ["diffusers", "AutoencoderOfNobody"]}, "vae is of class AutoencoderOfNobody"),
        ({"transformer": ["diffusers", "UNet2DConditionModel"]}, "which is not a transformer"),
        ({"_class_name": "NobodysPipeline"}, "has no pipeline NobodysPipeline"),
        ({"_class_name": "WanTransformer3DModel"}, "has no pipeline WanTransformer3DModel"),
        ({"_class_name": None}, "has no _class_name"),
        ({"transformer": None, "../elsewhere": ["diffusers", "WanTransformer3DModel"]}, "which is not a directory"),
    ],
)
def test_a_pipeline_that_cannot_be_looked_at_is_refused(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    code, answer = run_cli("inspect", str(index_of(tmp_path / "pipeline", **changes)))
    assert code == 2
    assert words in answer["error"]
    assert answer["hint"]


def test_a_config_that_contradicts_the_index_is_refused(tmp_path: Path) -> None:
    inner = index_of(tmp_path) / "transformer"
    inner.mkdir()
    (inner / "config.json").write_text('{"_class_name": "FluxTransformer2DModel"}', encoding="utf-8")
    with pytest.raises(BadInput, match=r"is a WanTransformer3DModel by model_index.json and a FluxTransformer2DModel"):
        open_source(str(tmp_path))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("AutoencoderKLWan", "AutoencoderKLWan is not a transformer: it is in diffusers/models/autoencoders/"),
        ("diffusers:UNet2DConditionModel", "UNet2DConditionModel is not a transformer"),
        ("WanTransformerBlock", "WanTransformerBlock is not a transformer"),
        ("UniPCMultistepScheduler", "UniPCMultistepScheduler is not a transformer"),
        ("StableDiffusionPipeline", "denoises with unet, a UNet2DConditionModel, which is not a transformer"),
        ("WanTransformer9DModel", "neither a file, a directory nor a model_type"),
        ("diffusers:WanTransformer9DModel", "diffusers 0.37.0 has no class 'WanTransformer9DModel'"),
        ("diffusers:olmoe", "has no class 'olmoe'"),
    ],
)
def test_a_class_that_is_no_transformer_is_refused(name: str, words: str, tmp_path: Path) -> None:
    for command in (["inspect"], ["check-layout"], ["new-model", "m", "--into", str(tmp_path), "--from"]):
        code, answer = run_cli(*command, name)
        assert code == 2
        assert words in answer["error"]
    assert list(tmp_path.iterdir()) == []


def test_pickled_weights_are_refused_and_a_config_alone_is_not(tmp_path: Path) -> None:
    pickled = save("WanTransformer3DModel", tmp_path / "model", WAN, safe_serialization=False)
    code, answer = run_cli("inspect", str(pickled))
    assert code == 2
    assert "only pickled weights (diffusion_pytorch_model.bin)" in answer["error"]
    assert open_source(str(pickled / "config.json")).kind is Kind.dit
    save("WanTransformer3DModel", index_of(tmp_path / "whole") / "transformer", WAN, safe_serialization=False)
    assert run_cli("check-layout", str(tmp_path / "whole"))[0] == 2


def test_a_component_of_another_kind_is_told_by_its_directory(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"_class_name": "AutoencoderKLWan"}', encoding="utf-8")
    assert open_source(str(tmp_path)).kind is Kind.other


def test_inspect_says_what_it_is_and_who_takes_it() -> None:
    code, answer = run_cli("inspect", "WanTransformer3DModel")
    assert (code, answer["kind"], answer["library"]) == (0, "dit", "diffusers")
    assert answer["components"] == []


def test_another_diffusers_is_read(tmp_path: Path) -> None:
    """An unpacked copy in which a class has another default and another name is read instead of the installed one."""
    package = tmp_path / "diffusers"
    home = package / "models" / "transformers"
    home.mkdir(parents=True)
    installed = find_library("diffusers").root
    (package / "__init__.py").write_text('__version__ = "9.9"\nNAMES = ["WanTransformer4DModel"]\n', encoding="utf-8")
    text = (installed / "models/transformers/transformer_wan.py").read_text(encoding="utf-8")
    text = text.replace("WanTransformer3DModel", "WanTransformer4DModel").replace(
        "freq_dim: int = 256", "freq_dim: int = 8"
    )
    (home / "transformer_wan.py").write_text(text, encoding="utf-8")
    (package / "models" / "modeling_utils.py").write_text("class ModelMixin:\n    pass\n", encoding="utf-8")
    code, answer = run_cli("inspect", "WanTransformer4DModel", "--diffusers", str(tmp_path))
    assert (code, answer["library_version"], answer["kind"]) == (0, "9.9", "dit")
    code, answer = run_cli("inspect", "WanTransformer4DModel")
    assert code == 2
    assert run_cli("check-layout", "WanTransformer3DModel", "--diffusers", str(tmp_path / "none"))[0] == 2


def test_what_is_no_class_is_refused() -> None:
    assert not is_diffusers_class("wan")
    with pytest.raises(BadInput, match="is of diffusers, not of transformers"):
        _ = open_source("WanTransformer3DModel").config
