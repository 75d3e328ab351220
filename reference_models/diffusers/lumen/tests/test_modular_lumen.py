"""The blocks return the pipeline's outputs, on the same components and noise."""

import math

import pytest
import torch
from lumen.modular import LumenModularPipeline
from test_lumen import LATENTS, TEXT, alike, small_pipeline


@pytest.mark.parametrize("scale", [1.0, 4.0])
@pytest.mark.parametrize("output_type", ["pt", "latent"] if len(LATENTS) == 4 else ["latent"])
def test_the_blocks_answer_what_the_pipeline_answers(scale, output_type):
    standard = small_pipeline()
    modular = LumenModularPipeline()
    modular.update_components(**{name: part for name, part in standard.components.items() if part is not None})
    if "guider" in modular.component_names:  # which has the scale
        modular.update_components(guider=modular.guider.new(guidance_scale=scale))
    modular.set_progress_bar_config(disable=True)
    embeds = torch.linspace(-1, 1, 2 * math.prod(TEXT)).reshape(2, *TEXT[1:])
    size = {"height": 2 * LATENTS[2], "width": 2 * LATENTS[3]} if len(LATENTS) == 4 else {}
    given = {
        **size,
        "num_inference_steps": 2,
        "guidance_scale": scale,
        "output_type": output_type,
        "latents": torch.linspace(-2, 2, 2 * math.prod(LATENTS)).reshape(2, *LATENTS[1:]),
        "prompt_embeds": embeds,
        "negative_prompt_embeds": embeds.flip(-1),
    }
    last = list(modular.blocks.sub_blocks.values())[-1].intermediate_output_names[0]
    assert alike(modular(**given, output=last), standard(**given).images)
