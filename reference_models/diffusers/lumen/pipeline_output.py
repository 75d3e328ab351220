from dataclasses import dataclass

import numpy as np
import PIL.Image
from diffusers.utils import BaseOutput


@dataclass
class LumenPipelineOutput(BaseOutput):
    """
    Output class for Lumen pipelines.

    Args:
        images (`list[PIL.Image.Image]` or `np.ndarray`):
            Denoised images, one for each prompt and image per prompt; an array is of shape `(batch_size, height,
            width, num_channels)`. With `output_type="latent"`, the latents as they are.
    """

    images: list[PIL.Image.Image] | np.ndarray
