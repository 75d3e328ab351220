"""How pipelines call their denoisers, read from source; what is read here is proven on running pipelines elsewhere."""

import ast

import pytest

from omni_kit.pysource.classes import ClassRef
from omni_kit.pysource.library import Library, find_library
from omni_kit.upstream.diffusers.affine import Affine, evaluate
from omni_kit.upstream.diffusers.blocks import block_classes, joined_streams
from omni_kit.upstream.diffusers.calling import guidance_argument
from omni_kit.upstream.diffusers.choosing import pipeline_of
from omni_kit.upstream.diffusers.classes import find_class
from omni_kit.upstream.diffusers.denoising import Denoising
from omni_kit.upstream.diffusers.models import component_model

STREAMS = ("hidden_states", "encoder_hidden_states")


@pytest.fixture(scope="module")
def diffusers() -> Library:
    return find_library("diffusers")


def denoising(library: Library, name: str, **values: object) -> Denoising:
    pipeline = pipeline_of(library, name)
    assert pipeline is not None
    return Denoising(pipeline, component_model(library, name, values))


def cls(library: Library, name: str) -> ClassRef:
    found = find_class(library, name)
    assert found is not None
    return found


@pytest.mark.parametrize(("name", "pipeline"), [
    ("WanTransformer3DModel", "WanPipeline"), ("FluxTransformer2DModel", "FluxPipeline"),
    ("SD3Transformer2DModel", "StableDiffusion3Pipeline"), ("QwenImageTransformer2DModel", "QwenImagePipeline"),
    ("OmniGenTransformer2DModel", "OmniGenPipeline"), ("ChronoEditTransformer3DModel", "ChronoEditPipeline"),
])  # fmt: skip
def test_the_plainest_pipeline_of_a_class(name: str, pipeline: str, diffusers: Library) -> None:
    assert denoising(diffusers, name).pipeline.cls.node.name == pipeline


def test_a_scale_that_is_read_with_a_default(diffusers: Library) -> None:
    assert denoising(diffusers, "PRXTransformer2DModel").scale.convention == "shift and scale"


@pytest.mark.parametrize(
    "name", ["WanAnimateTransformer3DModel", "T5FilmDecoder", "PriorTransformer", "Transformer2DModel"]
)
def test_a_class_that_none_asks_with_prompts_and_pictures(name: str, diffusers: Library) -> None:
    assert pipeline_of(diffusers, name) is None


@pytest.mark.parametrize(("name", "unit", "sign"), [
    ("WanTransformer3DModel", Affine(1.0), 1),
    ("FluxTransformer2DModel", Affine(0.001), 1),
    ("Lumina2Transformer2DModel", Affine(-0.001, 1.0), -1),
    ("ZImageTransformer2DModel", Affine(-0.001, 1.0), -1),
    ("HunyuanDiT2DModel", Affine(1.0), 1),
])  # fmt: skip
def test_what_a_step_is_called_and_the_sign_of_the_answer(
    name: str, unit: Affine, sign: int, diffusers: Library
) -> None:
    found = denoising(diffusers, name)
    assert (found.unit, found.sign) == (unit, sign)


def test_a_factor_of_the_config_counts(diffusers: Library) -> None:
    assert denoising(diffusers, "SanaTransformer2DModel", timestep_scale=0.5).unit == Affine(0.5)


@pytest.mark.parametrize(("name", "convention"), [
    ("FluxTransformer2DModel", "shift and scale"), ("Flux2Transformer2DModel", "batch-norm statistics"),
    ("WanTransformer3DModel", "mean and deviation"), ("SanaTransformer2DModel", "scale"),
    ("StableAudioDiTModel", ""),
])  # fmt: skip
def test_how_latents_are_scaled(name: str, convention: str, diffusers: Library) -> None:
    assert denoising(diffusers, name).scale.convention == convention


def test_where_mean_and_deviation_lie(diffusers: Library) -> None:
    wan, ltx = (denoising(diffusers, name).scale for name in ("WanTransformer3DModel", "LTXVideoTransformer3DModel"))

    assert (wan.mean, wan.deviation, wan.scaled) == ("vae.config.latents_mean", "vae.config.latents_std", False)
    assert (ltx.mean, ltx.deviation, ltx.scaled) == ("vae.latents_mean", "vae.latents_std", True)


@pytest.mark.parametrize(("text", "found"), [
    ("t / 1000", Affine(0.001)), ("(1000 - t) / 1000", Affine(-0.001, 1.0)), ("-t.expand(3).to(x)", Affine(-1.0)),
    ("torch.tensor([t] * 2)[None]", Affine(1.0)), ("torch.cat([t] * 2) if guided else t", Affine(1.0)),
    ("t * t", None), ("t / other", None), ("call(t)", None),
])  # fmt: skip
def test_expressions_of_a_step(text: str, found: Affine | None) -> None:
    assert evaluate(ast.parse(text, mode="eval").body, "t", [], {}, 10) == found


def test_of_several_assignments_the_last_that_can_be_read_counts() -> None:
    values = ["t * 2", "mask(t)", "t * 3"]
    assigned = [(line, "step", ast.parse(text, mode="eval").body) for line, text in enumerate(values, 1)]
    step = ast.parse("step", mode="eval").body

    assert evaluate(step, "t", assigned, {}, 3) == Affine(2.0)
    assert evaluate(step, "t", assigned, {}, 9) == Affine(3.0)


def test_blocks_are_what_the_class_says_and_else_what_its_constructor_lists(diffusers: Library) -> None:
    assert block_classes(cls(diffusers, "WanTransformer3DModel"))[0] == ["WanTransformerBlock"]
    assert block_classes(cls(diffusers, "LTXVideoTransformer3DModel"))[0] == ["LTXVideoTransformerBlock"]
    assert block_classes(cls(diffusers, "StableAudioDiTModel"))[0] == ["StableAudioDiTBlock"]


def test_the_order_in_which_streams_are_joined(diffusers: Library) -> None:
    assert joined_streams(cls(diffusers, "QwenImageTransformer2DModel"), STREAMS) == STREAMS[::-1]
    assert joined_streams(cls(diffusers, "WanTransformer3DModel"), STREAMS) == ()
    assert joined_streams(cls(diffusers, "FluxTransformer2DModel"), STREAMS) is None


@pytest.mark.parametrize(("name", "changing", "guidance"), [
    ("HunyuanImageTransformer2DModel", ["timestep_r"], "distilled_guidance_scale"),
    ("FluxTransformer2DModel", [], "guidance_scale"),
    ("QwenImageTransformer2DModel", [], "guidance_scale"),
])  # fmt: skip
def test_conditions_of_a_step_and_the_argument_of_guidance(
    name: str, changing: list[str], guidance: str, diffusers: Library
) -> None:
    read = denoising(diffusers, name)
    assert read.changing == changing
    assert guidance_argument(read.pipeline) == guidance
