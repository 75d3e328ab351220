"""A pipeline's call in parts: together they are upstream's statements, and what crosses between them is known."""

import ast
import builtins

import pytest

from omni_kit.errors import Refusal
from omni_kit.pysource.library import find_library
from omni_kit.pysource.names import of_tree
from omni_kit.upstream.diffusers.call_parts import ENTER, FINISH, LEAVE, PREDICT, PREPARE, Divided, divided
from omni_kit.upstream.diffusers.calling import images_of
from omni_kit.upstream.diffusers.defaults import Defaults, media_needed
from omni_kit.upstream.diffusers.pipelines import Pipeline, find_pipeline

SOME = ("FluxPipeline", "WanImageToVideoPipeline", "LTXConditionPipeline", "CogVideoXPipeline",
        "QwenImageEditPipeline", "SanaImageToVideoPipeline")  # fmt: skip


def read(pipeline: str) -> Pipeline:
    return find_pipeline(find_library("diffusers"), pipeline, {})


def parts_of(pipeline: str) -> Divided:
    return divided(read(pipeline))


@pytest.mark.parametrize("pipeline", SOME)
def test_no_part_reads_what_none_gives(pipeline: str) -> None:
    found = parts_of(pipeline)
    given = {name for part in found.parts.values() for name in part.leaves}
    outside = {*found.imported, *dir(builtins), *given, found.index, found.time, "self"}
    for name, part in found.parts.items():
        own = of_tree(ast.parse(part.text))
        arguments = {one.partition("=")[0] for one in found.signature} if name == PREPARE else set()
        assert own.read - own.stored - arguments - set(part.takes) <= outside
        assert set(part.takes) <= given
    assert found.latents in found.parts[LEAVE].leaves


@pytest.mark.parametrize("pipeline", SOME)
def test_each_part_does_its_own(pipeline: str) -> None:
    parts = parts_of(pipeline).parts
    assert "self.scheduler.step(" in parts[LEAVE].text
    assert ".encode_prompt(" in parts[PREPARE].text
    assert ".decode" in parts[FINISH].text
    asks = [name for name in (ENTER, PREDICT, LEAVE) if "self.transformer(" in parts[name].text
            or "current_model(" in parts[name].text]  # fmt: skip
    assert asks == [PREDICT]
    assert not any("progress_bar" in part.text or "callback_on_step_end(" in part.text for part in parts.values())


def test_what_may_be_unassigned_is_said() -> None:
    found = parts_of("WanImageToVideoPipeline").parts[PREPARE]
    assert "first_frame_mask" in found.unsure
    assert "latents" not in found.unsure


def test_defaults_stay_and_annotations_go() -> None:
    signature = parts_of("FluxPipeline").signature
    assert "guidance_scale=3.5" in signature
    assert not any(":" in one for one in signature)


@pytest.mark.parametrize(
    ("pipeline", "said"),
    [
        ("HunyuanVideoFramepackPipeline", "steps in nested loops"),
        ("GlmImagePipeline", "calls its denoiser outside of its loop"),
        ("SkyReelsV2DiffusionForcingPipeline", "has no loop over steps"),
        ("StableAudioPipeline", "returns before its end"),
    ],
)
def test_what_cannot_be_divided_is_refused_with_its_line(pipeline: str, said: str) -> None:
    with pytest.raises(Refusal, match=said) as caught:
        parts_of(pipeline)
    assert ".py:" in caught.value.message


@pytest.mark.parametrize(
    ("pipeline", "images", "needed"),
    [
        ("FluxPipeline", [], []),
        ("FluxImg2ImgPipeline", ["image"], ["image"]),
        ("FluxKontextPipeline", ["image"], []),  # it may start from text alone
        ("FluxFillPipeline", ["image", "mask_image"], ["image", "mask_image"]),  # annotated as tensors, and processed
        ("WanImageToVideoPipeline", ["image", "last_image"], ["image"]),
        ("GlmImagePipeline", ["image"], []),  # what checks a picture takes None, too
        ("CosmosVideoToWorldPipeline", ["image"], ["video"]),
    ],
)
def test_images_are_told_by_signature_and_code(pipeline: str, images: list[str], needed: list[str]) -> None:
    found = read(pipeline)
    scheduler = next(one.class_name for one in found.components if one.name == "scheduler")
    assert images_of(found) == images
    assert media_needed(Defaults(found, scheduler)) == needed
