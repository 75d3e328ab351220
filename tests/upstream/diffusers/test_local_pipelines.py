"""Pipelines outside diffusers: files that define a class on DiffusionPipeline."""

from pathlib import Path

import pytest

from omni_kit.errors import BadInput
from omni_kit.pysource.library import find_library
from omni_kit.upstream.diffusers.local_pipelines import absolute, file_outside, outside_pipeline
from omni_kit.upstream.subject import open_source

CODE = """
raise SystemExit("it was run")
from diffusers import AutoencoderKL, FlowMatchEulerDiscreteScheduler, FluxTransformer2DModel
from diffusers.pipelines.pipeline_utils import DiffusionPipeline
from transformers import T5EncoderModel

class DrawingPipeline(DiffusionPipeline):
    def __init__(self, transformer: FluxTransformer2DModel, vae: AutoencoderKL, text_encoder: T5EncoderModel,
                 scheduler: FlowMatchEulerDiscreteScheduler):
        pass

    def __call__(self, prompt: str):
        pass

class Other:
    pass
"""


def written(directory: Path, code: str = CODE) -> Path:
    directory.mkdir(exist_ok=True)
    (directory / "pipeline.py").write_text(code, encoding="utf-8")
    return directory / "pipeline.py"


def test_a_file_its_directory_and_its_class_are_one_pipeline(tmp_path: Path) -> None:
    file = written(tmp_path / "authors")
    for given in (str(file), str(file.parent), f"{file}::DrawingPipeline"):
        subject = open_source(given)
        assert subject.pipeline is not None
        assert subject.name == "FluxTransformer2DModel"
        assert subject.pipeline.components[0].name == "transformer"
        assert file_outside(subject.pipeline) == file
        assert subject.pipeline.cls.source.where(subject.pipeline.cls.node) == "pipeline.py:7"


def test_a_class_of_diffusers_and_files_without_a_pipeline_are_none(tmp_path: Path) -> None:
    library = find_library("diffusers")
    file = written(tmp_path, CODE.replace("class DrawingPipeline(DiffusionPipeline)", "class DrawingPipeline"))
    assert outside_pipeline(str(file), library) is None
    assert outside_pipeline("FluxPipeline", library) is None
    found = open_source("FluxPipeline").pipeline
    assert found is not None
    assert file_outside(found) is None


def test_methods_of_bases_in_diffusers_are_found(tmp_path: Path) -> None:
    file = written(tmp_path, "from diffusers import FluxPipeline\nclass Mine(FluxPipeline):\n    ...\n")
    found = outside_pipeline(str(file), find_library("diffusers"))
    assert found is not None
    assert found.denoiser.class_name == "FluxTransformer2DModel"


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (f"{CODE}class Second(DrawingPipeline): ...", "several pipelines: DrawingPipeline, Second"),
        (f"{CODE}from .helpers import blend", "imports .helpers, a file next to it"),
    ],
)
def test_what_is_not_one_pipeline_in_one_file_is_refused(code: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=said):
        open_source(str(written(tmp_path, code)))


def test_an_index_names_a_class_of_a_file_next_to_it(tmp_path: Path) -> None:
    written(tmp_path)
    (tmp_path / "model_index.json").write_text(
        '{"_class_name": ["pipeline", "DrawingPipeline"], "transformer": ["diffusers", "FluxTransformer2DModel"]}'
    )
    found = open_source(str(tmp_path)).pipeline
    assert found is not None
    assert found.cls.node.name == "DrawingPipeline"


def test_a_path_is_made_absolute_and_a_name_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = written(tmp_path / "authors")
    monkeypatch.chdir(tmp_path)
    assert absolute("authors/pipeline.py::DrawingPipeline") == f"{file}::DrawingPipeline"
    assert absolute("authors") == str(file)
    assert [absolute(one) for one in ("FluxPipeline", "")] == ["FluxPipeline", ""]
