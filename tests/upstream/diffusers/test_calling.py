"""What calls of pipelines take besides text."""

import pytest

from omni_kit.pysource.library import find_library
from omni_kit.upstream.diffusers.calling import (
    frames_of,
    images_of,
    listed_images,
    prompt_keys,
    seconds_of,
    values_as,
)
from omni_kit.upstream.diffusers.pipelines import Pipeline, find_pipeline


def read(name: str) -> Pipeline:
    return find_pipeline(find_library("diffusers"), name, {})


def test_a_mask_goes_with_the_picture_before_it_and_not_with_a_film() -> None:
    assert images_of(read("FluxInpaintPipeline"))[:2] == ["image", "mask_image"]
    assert images_of(read("WanVACEPipeline")) == ["reference_images"]


@pytest.mark.parametrize(
    ("name", "listed"),
    [
        ("WanVACEPipeline", ["reference_images"]),
        ("GlmImagePipeline", ["image"]),  # a static method that the call passes it to accepts lists only
        ("FluxKontextPipeline", []),
        ("Flux2KleinPipeline", []),  # a list or one
    ],
)
def test_pictures_that_a_call_accepts_in_lists_only(name: str, listed: list[str]) -> None:
    assert listed_images(read(name)) == listed


@pytest.mark.parametrize(
    ("name", "frames"),
    [("WanPipeline", "num_frames"), ("SanaVideoPipeline", "frames"), ("LattePipeline", "video_length")],
)
def test_what_the_number_of_frames_is_called(name: str, frames: str) -> None:
    assert frames_of(read(name)) == frames


def test_pictures_have_no_frames() -> None:
    assert frames_of(read("FluxPipeline")) == ""


def test_what_the_length_of_a_sound_is_called() -> None:
    assert seconds_of(read("StableAudioPipeline")) == "audio_end_in_s"
    assert seconds_of(read("WanPipeline")) == ""


def test_keys_of_prompts_that_have_to_be_json_and_none_of_plain_ones() -> None:
    assert prompt_keys(read("BriaFiboEditPipeline")) == ["edit_instruction"]
    assert prompt_keys(read("BriaFiboPipeline")) is None


def test_values_come_as_arrays_where_no_tensors_are_converted() -> None:
    assert values_as(read("LTXI2VLongMultiPromptPipeline")) == "np"
    assert values_as(read("LTXPipeline")) == "pt"
