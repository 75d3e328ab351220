"""The pipeline with a small transformer and a small autoencoder."""

import json
import math
from pathlib import Path
from types import SimpleNamespace

import torch
from diffusers import AutoencoderKL, FlowMatchEulerDiscreteScheduler
from lumen import LumenPipeline, LumenTransformer2DModel

TOY = json.loads((Path(__file__).parents[1] / "toy_config.json").read_text(encoding="utf-8"))
CONFIG = {name: value for name, value in TOY.items() if not name.startswith("_")}
STATED = {name: one["shape"] for name, one in TOY.get("_inputs", {}).items() if isinstance(one, dict)}
SHAPES = {**TOY["_shapes"], **STATED}
LATENTS = tuple(SHAPES["x"])
TEXT = tuple(SHAPES["context"])
CHANNELS = CONFIG["in_channels"]


def alike(one, other):
    """Compare by the largest value: some CPU kernels depend on the weights' alignment in memory."""
    return bool((one - other).abs().max() <= 1e-4 * max(1.0, float(other.abs().max())))


def small_pipeline():
    torch.manual_seed(0)
    transformer = LumenTransformer2DModel(**CONFIG).eval()
    vae = AutoencoderKL(
        latent_channels=CHANNELS,
        block_out_channels=(8, 8),
        down_block_types=("DownEncoderBlock2D", "DownEncoderBlock2D"),
        up_block_types=("UpDecoderBlock2D", "UpDecoderBlock2D"),
        norm_num_groups=4,
        sample_size=16,
    ).eval()
    pipeline = LumenPipeline(transformer, FlowMatchEulerDiscreteScheduler(shift=3.0), vae)
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def drawn(pipeline, seed=0, **more):
    embeds = torch.linspace(-1, 1, math.prod(TEXT)).reshape(TEXT)
    generator = torch.Generator("cpu").manual_seed(seed)
    if len(LATENTS) == 4:
        size = {"height": 2 * LATENTS[2], "width": 2 * LATENTS[3], "output_type": "pt"}
    else:  # no pictures, as toy_config.json states
        size = {"latents": torch.randn(LATENTS, generator=generator), "output_type": "latent"}
    given = {"num_inference_steps": 2, **size, **more}
    return pipeline(prompt_embeds=embeds, negative_prompt_embeds=embeds.flip(-1), generator=generator, **given).images


def test_a_generator_decides():
    pipeline = small_pipeline()
    assert alike(drawn(pipeline), drawn(pipeline))
    assert not alike(drawn(pipeline), drawn(pipeline, seed=1))


def test_latents_are_answered_as_they_are():
    assert drawn(small_pipeline(), output_type="latent").shape == LATENTS


def test_a_callback_sees_every_step():
    seen = []

    def callback(pipeline, step, timestep, tensors):
        seen.append((step, tensors["latents"].shape))
        return tensors

    drawn(small_pipeline(), callback_on_step_end=callback)
    assert [step for step, _ in seen] == [0, 1]


def test_nothing_is_kept_for_a_gradient():
    assert not drawn(small_pipeline()).requires_grad


def test_pictures_of_one_prompt_stand_together():
    pipeline = small_pipeline()
    tokens = torch.tensor([[1, 2], [3, 4]])
    pipeline.tokenizer = lambda prompt, **given: SimpleNamespace(
        input_ids=tokens, attention_mask=torch.ones_like(tokens)
    )
    pipeline.text_encoder = lambda ids, **given: (ids[..., None].float(),)
    embeds, _ = pipeline.encode_prompt(["one", "other"], num_images_per_prompt=2, device="cpu")
    assert embeds[:, 0, 0].tolist() == [1, 1, 3, 3]


def test_what_is_saved_comes_back(tmp_path):
    pipeline = small_pipeline()
    pipeline.transformer.save_pretrained(tmp_path)
    expected = drawn(pipeline)
    pipeline.register_modules(transformer=LumenTransformer2DModel.from_pretrained(tmp_path))
    assert alike(drawn(pipeline), expected)


def test_the_scheduler_goes_along_the_authors_schedule():
    """`get_sigmas` gives shift * s / (1 + (shift - 1) * s) of even steps s from 1 to 0."""
    scheduler = FlowMatchEulerDiscreteScheduler(shift=3.0)
    for steps in (4, 9):
        even = torch.linspace(1.0, 0.0, steps + 1)
        scheduler.set_timesteps(sigmas=even[:-1].tolist())
        assert torch.allclose(scheduler.sigmas, 3.0 * even / (1 + (3.0 - 1) * even), atol=1e-6)
