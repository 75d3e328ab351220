"""Models and pipelines of diffusers, opened at the same door as those of transformers."""

import json
from pathlib import Path

import pytest

from omni_kit.errors import BadInput
from omni_kit.upstream.diffusers.classes import is_diffusers_class, place_of
from omni_kit.upstream.kinds import Kind
from omni_kit.upstream.library import find_library
from omni_kit.upstream.subject import open_source
from tests.conftest import run_cli

INDEX = {
    "_class_name": "WanPipeline",
    "_diffusers_version": "0.37.0",
    "scheduler": ["diffusers", "UniPCMultistepScheduler"],
    "text_encoder": ["transformers", "UMT5EncoderModel"],
    "transformer": ["diffusers", "WanTransformer3DModel"],
    "image_encoder": [None, None],
}


@pytest.mark.parametrize(
    ("name", "kind", "folder"),
    [
        ("WanTransformer3DModel", Kind.dit, "models/transformers/"),
        ("QwenImageTransformer2DModel", Kind.dit, "models/transformers/"),
        ("FluxPipeline", Kind.pipeline, "pipelines/"),
        ("AutoencoderKLWan", Kind.other, "models/autoencoders/"),
    ],
)
def test_a_class_is_told_by_where_it_stands(name: str, kind: Kind, folder: str) -> None:
    subject = open_source(name)
    assert (subject.kind, subject.library.name) == (kind, "diffusers")
    assert (place_of(find_library("diffusers"), name) or "").startswith(folder)


def test_a_component_and_a_pipeline_are_told_by_their_files(tmp_path: Path) -> None:
    inner = tmp_path / "transformer"
    inner.mkdir()
    (inner / "config.json").write_text('{"_class_name": "WanTransformer3DModel"}', encoding="utf-8")
    (tmp_path / "model_index.json").write_text(json.dumps(INDEX), encoding="utf-8")
    assert open_source(str(inner)).kind is Kind.dit
    assert open_source(str(tmp_path)).kind is Kind.pipeline
    components = open_source(str(tmp_path / "model_index.json")).profile.components
    assert [component.name for component in components] == ["scheduler", "text_encoder", "transformer"]


def test_inspect_says_what_it_is_and_who_takes_it() -> None:
    code, answer = run_cli("inspect", "WanTransformer3DModel")
    assert (code, answer["kind"], answer["library"]) == (0, "dit", "diffusers")
    assert answer["targets"] == {}
    assert any("compared and checked, and not scaffolded yet" in note for note in answer["notes"])


def test_what_is_no_class_is_refused() -> None:
    assert not is_diffusers_class("wan")
    with pytest.raises(BadInput, match="neither a file, a directory nor a model_type"):
        open_source("WanTransformer9DModel")
    with pytest.raises(BadInput, match="is of diffusers, not of transformers"):
        _ = open_source("WanTransformer3DModel").config
