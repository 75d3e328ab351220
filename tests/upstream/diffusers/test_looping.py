"""What a pipeline's loop, and what comes after it, do besides the usual; read from diffusers' own pipelines."""

import pytest

from omni_kit.pysource.library import find_library
from omni_kit.targets.sglang_diffusion.facts import PipelineFacts, pipeline_facts
from omni_kit.upstream.diffusers.classes import find_class
from omni_kit.upstream.diffusers.composing import Reader
from omni_kit.upstream.diffusers.decoding import decodes_in_tiles_alone
from omni_kit.upstream.diffusers.defaults import Defaults, media_needed
from omni_kit.upstream.diffusers.latent_decoding import unusual_ends
from omni_kit.upstream.diffusers.looping import oddities
from omni_kit.upstream.diffusers.renamed_expressions import Wording
from omni_kit.upstream.subject import open_source


def read(pipeline: str) -> PipelineFacts:
    return pipeline_facts(open_source(pipeline))


@pytest.mark.parametrize("pipeline", ["FluxPipeline", "SanaPipeline", "ZImagePipeline", "PixArtSigmaPipeline"])
def test_a_plain_loop_has_nothing_odd(pipeline: str) -> None:
    facts = read(pipeline)
    assert oddities(facts.denoising, facts.scheduler.class_name) == []
    assert unusual_ends(facts.denoising, facts.scheduler.class_name) == []


# Pipeline -> what a person sees in its source.
@pytest.mark.parametrize(
    ("pipeline", "said"),
    [
        ("StableDiffusion3PAGPipeline", "makes self._apply_perturbed_attention_guidance"),  # another guidance
        ("QwenImageInpaintPipeline", "changes its latents with (1 - init_mask)"),  # after a step
        ("FluxFillPipeline", "passes its denoiser torch.cat((latents, masked_image_latents)"),  # more than latents
        ("SkyReelsV2DiffusionForcingPipeline", "calls its denoiser outside of a single loop"),
        ("Kandinsky5T2VPipeline", "steps by latents[:, :, :, :, :num_channels_latents]"),  # on a part
        ("LongCatImagePipeline", "makes noise_pred * scale"),  # a norm of its own
    ],
)
def test_another_loop_is_told_with_its_place(pipeline: str, said: str) -> None:
    facts = read(pipeline)
    found = oddities(facts.denoising, facts.scheduler.class_name)
    assert any(one.startswith(said) for one in found), found
    assert all(".py:" in one for one in found)


@pytest.mark.parametrize(
    ("pipeline", "said"),
    [
        ("LattePipeline", "self.decode_latents("),
        ("BriaFiboPipeline", "unsq"),
        ("SanaSprintPipeline", "denoised / self.scheduler.config.sigma_data"),  # not of the last step's latents
    ],
)
def test_another_end_is_told(pipeline: str, said: str) -> None:
    facts = read(pipeline)
    assert any(said in one for one in unusual_ends(facts.denoising, facts.scheduler.class_name))


@pytest.mark.parametrize(
    ("pipeline", "needed"),
    [
        ("FluxPipeline", []), ("WanPipeline", []), ("Flux2Pipeline", []), ("FluxImg2ImgPipeline", ["image"]),
        ("WanVideoToVideoPipeline", ["video"]), ("FluxControlPipeline", ["control_image"]),
    ],
)  # fmt: skip
def test_media_are_needed_where_they_are_worked_on(pipeline: str, needed: list[str]) -> None:
    facts = read(pipeline)
    assert media_needed(Defaults(facts.pipeline, facts.scheduler.class_name)) == needed


@pytest.mark.parametrize(("autoencoder", "alone"), [("AutoencoderKLAllegro", True), ("AutoencoderKL", False)])
def test_an_autoencoder_that_decodes_in_tiles_alone(autoencoder: str, alone: bool) -> None:
    cls = find_class(find_library("diffusers"), autoencoder)
    assert cls is not None
    assert decodes_in_tiles_alone(cls) is alone


def test_a_pipeline_taken_apart() -> None:
    facts = read("StableDiffusion3Pipeline")
    words = {"height": "H", "width": "W", "self.vae.config": "V", "self.transformer.config": "T",
             "self._guidance_scale": "G"}  # fmt: skip
    found = Reader(facts.denoising, facts.guidance, Wording(facts.pipeline, facts.scheduler.class_name, words)).read()
    assert found.against == []
    assert found.guides == "G > 1"
    assert list(found.shape[1:3]) == ["T.in_channels", "int(H) // 2 ** (len(V.block_out_channels) - 1)"]
    assert found.conditions == {
        "encoder_hidden_states": ("prompt_embeds", "negative_prompt_embeds"),
        "pooled_projections": ("pooled_prompt_embeds", "negative_pooled_prompt_embeds"),
    }


def test_what_has_no_word_is_said() -> None:
    facts = read("StableDiffusion3Pipeline")
    found = Reader(facts.denoising, facts.guidance, Wording(facts.pipeline, facts.scheduler.class_name, {})).read()
    assert any("shapes its noise by" in one for one in found.against)
