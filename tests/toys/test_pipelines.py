"""Small pipelines from a class alone."""

import importlib.util
import inspect
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from omni_kit.errors import BadInput, MissingRequirement
from omni_kit.targets.references.pipelines import PipelineBuilder, read_pipeline
from omni_kit.toys.batches.pipeline import LONGER, PipelineBatchBuilder
from omni_kit.toys.pipelines import fitting, parts
from omni_kit.upstream.profile import Component

FITTED = ["LTXPipeline", "SanaPipeline", "ZImagePipeline"]
MORE = ["FluxPipeline", "StableDiffusion3Pipeline", "WanPipeline", "QwenImagePipeline", "ChromaPipeline",
        "Lumina2Pipeline", "CogView4Pipeline", "HunyuanVideoPipeline", "MochiPipeline", "HunyuanDiTPipeline",
        "HunyuanImagePipeline", "EasyAnimatePipeline", "HunyuanVideo15Pipeline", "LattePipeline", "SanaVideoPipeline",
        "BriaFiboPipeline", "WanVACEPipeline", "SkyReelsV2Pipeline"]  # fmt: skip


def made(name: str) -> Any:
    builder = PipelineBuilder()
    builder.open({})
    builder.make_toy(name, PipelineBatchBuilder())
    return builder._pipeline


@pytest.mark.parametrize("name", [*FITTED, *(pytest.param(name, marks=pytest.mark.sweep) for name in MORE)])
def test_every_part_is_of_its_real_class_and_they_fit_each_other(name: str) -> None:
    pipeline = made(name)
    assert type(pipeline).__name__ == name
    parameters = [p for part in pipeline.components.values() if hasattr(part, "parameters") for p in part.parameters()]
    assert sum(p.numel() for p in parameters) < 20_000_000
    assert all(bool(p.isfinite().all()) for p in parameters)


def test_it_is_the_same_each_time() -> None:
    first, second = (made("LTXPipeline").transformer.state_dict() for _ in range(2))
    assert all(torch.equal(tensor, second[name]) for name, tensor in first.items())


@pytest.mark.parametrize(("name", "said"), [("VQDiffusionPipeline", "VQDiffusionScheduler can be built")])
def test_what_cannot_be_made_is_said_in_one_line(name: str, said: str) -> None:
    with pytest.raises(BadInput, match=f"no small {name} can be made: .*{said}") as raised:
        made(name)
    assert "\n" not in raised.value.message
    assert "--checkpoint" in raised.value.hint


@pytest.mark.skipif(importlib.util.find_spec("torchvision") is not None, reason="torchvision is installed")
def test_a_package_that_the_pipeline_calls_is_named_with_its_command() -> None:
    with pytest.raises(MissingRequirement, match="OmniGenPipeline calls torchvision") as raised:
        made("OmniGenPipeline")
    assert raised.value.hint == "pip install torchvision"


def test_channels_of_a_learned_variance_and_a_table_of_frames_are_fitted() -> None:
    config = made("LattePipeline").transformer.config
    assert (config.out_channels, config.video_length) == (2 * config.in_channels, 5)


def test_a_mask_and_what_it_leaves_are_taken_and_not_predicted() -> None:
    pipeline = made("EasyAnimateInpaintPipeline")
    latents, config = pipeline.vae.config.latent_channels, pipeline.transformer.config
    assert (config.in_channels, config.out_channels) == (2 * latents + 1, latents)


def test_an_encoder_of_images_its_processor_and_its_embedder_fit() -> None:
    pipeline = made("SkyReelsV2ImageToVideoPipeline")
    vision = pipeline.image_encoder.config
    assert pipeline.transformer.config.image_dim == vision.hidden_size
    assert dict(pipeline.image_processor.image_processor.crop_size) == dict.fromkeys(
        ("height", "width"), vision.image_size
    )


def test_the_class_of_an_autoencoder_is_the_one_whose_config_the_pipeline_reads() -> None:
    assert "scale_factor_temporal" in made("SanaVideoPipeline").vae.config


def test_a_distilled_pipeline_gets_its_scheduler_its_switch_and_its_steps() -> None:
    pipeline = made("SanaSprintPipeline")
    assert type(pipeline.scheduler).__name__ == "SCMScheduler"
    assert pipeline.transformer.config.guidance_embeds


def test_channels_that_a_pipeline_names_are_those_of_its_latents_and_its_denoiser() -> None:
    pipeline = made("StableDiffusion3InpaintPipeline")
    channels = pipeline.transformer.config.in_channels, pipeline.vae.config.latent_channels
    assert channels == (16, 16)  # "should have 16 input channels or 33"


@pytest.mark.sweep
def test_latents_next_to_those_of_an_image_leave_the_length_of_texts_alone() -> None:
    config = made("CogVideoXImageToVideoPipeline").transformer.config
    assert (config.in_channels, config.out_channels, config.max_text_seq_length) == (32, 16, 226)


def test_a_tokenizer_marks_the_places_of_images_by_the_numbers_of_its_encoder() -> None:
    qwen = parts.encoder(Component("text_encoder", "transformers", "Qwen2_5_VLForConditionalGeneration"))
    marks = parts.marks_of([qwen], ["<|vision_start|><|image_pad|><|vision_end|>"])
    assert marks["image_token"] == ("<|image_pad|>", qwen.config.image_token_id)
    assert "pad_token" not in marks
    made = parts.tokenizer(64, marks)
    read = made("a <|vision_start|><|image_pad|><|image_pad|> cat").input_ids
    assert read.count(qwen.config.image_token_id) == 2
    assert made.image_token_id == qwen.config.image_token_id


def test_a_chat_template_marks_each_image_and_spells_texts() -> None:
    made = parts.tokenizer(64, {"image_token": ("<|image|>", 60)})
    content = [{"type": "image", "image": None}, {"type": "text", "text": "red dog"}]
    text = made.apply_chat_template([{"role": "user", "content": content}], tokenize=False)
    assert text.split() == ["user", "<|image|>", "red", "dog", "assistant"]
    plain = made.apply_chat_template([{"role": "user", "content": "red dog"}], tokenize=False)
    assert plain.split() == ["user", "red", "dog", "assistant"]


def test_an_encoder_of_texts_alone_marks_nothing() -> None:
    t5 = parts.encoder(Component("text_encoder", "transformers", "T5EncoderModel"))
    assert parts.marks_of([t5], ["<|image_pad|>"]) == {}


def test_channels_that_a_call_writes_down_are_those_of_latents() -> None:
    assert fitting._written_channels(read_pipeline("LongCatImagePipeline")) == 16
    assert fitting._written_channels(read_pipeline("FluxPipeline")) is None


def test_a_switch_is_found_above_a_line_that_it_guards_and_above_no_other() -> None:
    code, lines = inspect.getsourcelines(_switched)
    at = {line.strip(): number for number, line in enumerate(code, lines)}
    assert [*fitting._asked_above(_switched.__code__, at["return 1"])] == ["use_style"]
    assert [*fitting._asked_above(_switched.__code__, at["return 0"])] == []


def _switched(self: Any) -> int:
    if self.use_style:
        return 1
    return 0


def test_a_switch_that_widens_the_input_is_found_by_both_widths_and_by_no_others() -> None:
    denoiser = read_pipeline("Kandinsky5I2IPipeline").denoiser
    code, config = parts.constructor_code(denoiser), {"in_visual_dim": 4, "visual_cond": False}
    assert fitting.widening(code, config, wants=16, came=36) == "visual_cond"  # patches of four: 4 and 2 * 4 + 1
    assert fitting.widening(code, config, wants=16, came=32) == ""
    assert fitting.widening(code, {**config, "visual_cond": True}, wants=16, came=36) == ""


@pytest.mark.sweep
def test_a_film_whose_frames_are_compared_has_several_frames_of_latents() -> None:
    pytest.importorskip("torchvision")  # its processor needs it
    batches = PipelineBatchBuilder()
    PipelineBuilder().make_toy("Kandinsky5I2VPipeline", batches)
    assert batches.change is LONGER[0]


@pytest.mark.sweep
def test_a_switch_that_a_pipeline_does_not_serve_is_off() -> None:
    assert not made("HunyuanDiTPAGPipeline").transformer.config.use_style_cond_and_image_meta_size
    assert made("HunyuanDiTPipeline").transformer.config.use_style_cond_and_image_meta_size


@pytest.mark.sweep
def test_a_denoiser_of_pictures_that_gets_films_has_an_axis_of_frames() -> None:
    films, pictures = (made(f"HunyuanImage{kind}Pipeline").transformer.config for kind in ("Refiner", ""))
    assert (list(films.patch_size), sum(films.rope_axes_dim)) == ([1, 1, 1], sum(pictures.rope_axes_dim))
    assert len(pictures.patch_size) == 2


@pytest.mark.sweep
def test_a_pipeline_that_decodes_in_tiles_is_fitted_at_a_size_that_has_them() -> None:
    channels = made("LTXI2VLongMultiPromptPipeline").transformer.config
    assert channels.in_channels == channels.out_channels == 128


@pytest.mark.sweep
def test_an_image_that_is_brought_to_a_large_size_is_halved_as_often_as_published_ones() -> None:
    assert len(made("FluxKontextPipeline").vae.config.block_out_channels) == 5  # and once more: it attends to fewer
    assert len(made("ZImagePipeline").vae.config.block_out_channels) == 2


@pytest.mark.sweep
def test_codes_that_an_encoder_writes_are_as_many_as_patches_and_their_channels_are_measured() -> None:
    """GlmImage's encoder writes a code for each patch; its pipeline scales latents channel by channel."""
    pipeline = made("GlmImagePipeline")
    transformer, vae = pipeline.transformer.config, pipeline.vae.config
    assert pipeline.vision_language_encoder.config.text_config.vision_vocab_size <= (
        transformer.prior_vq_quantizer_codebook_size
    )
    assert len(vae.block_out_channels) == 4
    assert len(set(vae.latents_std)) == vae.latent_channels
    assert made("CogView4Pipeline").vae.config.latents_std is None


@pytest.mark.sweep
def test_an_encoder_is_saved_with_the_config_of_its_decoder_and_its_package(tmp_path: Path) -> None:
    parts.save(made("PRXPipeline"), tmp_path)
    assert {"encoder", "decoder"} <= json.loads((tmp_path / "text_encoder" / "config.json").read_text()).keys()
    index = json.loads((tmp_path / "model_index.json").read_text())
    assert index["text_encoder"] == ["prx", "T5GemmaEncoder"]
    assert index["vae"][0] == "diffusers"


def test_the_encoder_that_reads_images_numbers_their_mark_whichever_comes_first() -> None:
    t5 = parts.encoder(Component("text_encoder", "transformers", "T5EncoderModel"))
    qwen = parts.encoder(Component("text_encoder_2", "transformers", "Qwen2_5_VLForConditionalGeneration"))
    code = ["self.image_token = tokenizer.image_token"]
    assert parts.marks_of([t5, qwen], code)["image_token"] == ("<|image|>", qwen.config.image_token_id)


def test_a_processor_has_the_patches_of_the_encoder_that_reads_them() -> None:
    glm = parts.encoder(Component("encoder", "transformers", "GlmImageForConditionalGeneration"))
    config = glm.config.vision_config
    assert parts.seen_by(glm) == {"patch_size": 16, "merge_size": 1, "temporal_patch_size": 1}  # as published ones
    codes = glm.config.vq_config
    assert (codes.latent_channels, codes.num_embeddings) == (config.hidden_size, 60)
    t5 = parts.encoder(Component("text_encoder", "transformers", "T5EncoderModel"))
    assert parts.seen_by(t5) == {}


@pytest.mark.parametrize(
    ("class_name", "marks"),
    [
        ("CLIPTokenizer", ["bos_token_id", "eos_token_id"]), ("T5TokenizerFast", ["eos_token_id"]),
        ("GemmaTokenizer", ["bos_token_id"]), ("AutoTokenizer", ["bos_token_id", "eos_token_id"]),
        ("Qwen2Tokenizer", []),
    ],
)  # fmt: skip
def test_an_empty_text_has_the_tokens_of_its_class(class_name: str, marks: list[str]) -> None:
    made = parts.tokenizer(16, around=parts.around_text(class_name))
    empty, word = made("").input_ids, made("cat").input_ids
    assert empty == [getattr(made, name) for name in marks]
    assert len(word) == len(empty) + 1


def test_a_small_autoencoder_of_sounds_makes_a_latent_of_few_samples() -> None:
    sounds = made("StableAudioPipeline").vae
    assert sounds.hop_length == 8
    assert sounds.config.sampling_rate < 100
