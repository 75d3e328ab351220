# TODO(omni-kit): encode prompts as the authors do: which text encoder, which layer, which length
# TODO(omni-kit): scale latents as the authors' autoencoder expects
import inspect
from typing import Any, Callable

import numpy as np
import torch
from diffusers.image_processor import VaeImageProcessor
from diffusers.loaders import FromSingleFileMixin
from diffusers.models import AutoencoderKL
from diffusers.pipelines.pipeline_utils import DiffusionPipeline
from diffusers.schedulers import FlowMatchEulerDiscreteScheduler
from diffusers.utils.torch_utils import randn_tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from .pipeline_output import LumenPipelineOutput
from .transformer_lumen import LumenTransformer2DModel


class LumenPipeline(DiffusionPipeline, FromSingleFileMixin):
    r"""
    Text-to-image pipeline with Lumen.

    Args:
        transformer ([`LumenTransformer2DModel`]):
            Denoises latents, given the embedding of a prompt.
        scheduler ([`FlowMatchEulerDiscreteScheduler`]):
            Takes latents from noise to images.
            The authors' is `FlowMatchEulerDiscreteScheduler(shift=3.0)`.
        vae ([`AutoencoderKL`]):
            Decodes latents to images.
        text_encoder ([`~transformers.PreTrainedModel`]):
            Encodes prompts.
        tokenizer ([`~transformers.PreTrainedTokenizerBase`]):
            Tokenizes prompts.
    """

    model_cpu_offload_seq = "text_encoder->transformer->vae"
    _optional_components = ["text_encoder", "tokenizer"]
    _callback_tensor_inputs = ["latents", "prompt_embeds"]

    def __init__(
        self,
        transformer: LumenTransformer2DModel,
        scheduler: FlowMatchEulerDiscreteScheduler,
        vae: AutoencoderKL,
        text_encoder: PreTrainedModel | None = None,
        tokenizer: PreTrainedTokenizerBase | None = None,
    ):
        super().__init__()
        self.register_modules(
            transformer=transformer, scheduler=scheduler, vae=vae, text_encoder=text_encoder, tokenizer=tokenizer
        )
        self.vae_scale_factor = 2 ** (len(self.vae.config.block_out_channels) - 1) if getattr(self, "vae", None) else 8
        self.image_processor = VaeImageProcessor(vae_scale_factor=self.vae_scale_factor)

    def encode_prompt(
        self,
        prompt: str | list[str],
        num_images_per_prompt: int = 1,
        max_sequence_length: int = 256,
        device: torch.device | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        r"""
        Embeds prompts.

        Args:
            prompt (`str` or `list[str]`): one or several.
            num_images_per_prompt (`int`, defaults to 1): number of images per prompt; rows of one prompt are adjacent.
            max_sequence_length (`int`, defaults to 256): longer prompts are truncated.
            device (`torch.device`, *optional*): device of the embedding.

        Returns:
            `tuple[torch.Tensor, torch.Tensor]`: the embedding and its mask, one row per image.
        """
        device = device or self._execution_device
        prompt = [prompt] if isinstance(prompt, str) else prompt
        tokens = self.tokenizer(
            prompt, padding="max_length", max_length=max_sequence_length, truncation=True, return_tensors="pt"
        )
        mask = tokens.attention_mask.to(device)
        prompt_embeds = self.text_encoder(tokens.input_ids.to(device), attention_mask=mask)[0]
        prompt_embeds = prompt_embeds.to(dtype=self.transformer.dtype, device=device)
        return (
            prompt_embeds.repeat_interleave(num_images_per_prompt, dim=0),
            mask.repeat_interleave(num_images_per_prompt, dim=0).bool(),
        )

    def check_inputs(self, prompt, prompt_embeds, height, width, callback_on_step_end_tensor_inputs):
        """Raise `ValueError` for invalid inputs."""
        if (prompt is None) == (prompt_embeds is None):
            raise ValueError("Provide either `prompt` or `prompt_embeds`, and not both.")
        if height % self.vae_scale_factor or width % self.vae_scale_factor:
            raise ValueError(f"`height` and `width` must be divisible by {self.vae_scale_factor}.")
        unknown = set(callback_on_step_end_tensor_inputs) - set(self._callback_tensor_inputs)
        if unknown:
            raise ValueError(
                f"`callback_on_step_end_tensor_inputs` has {sorted(unknown)}, which are not available in a step."
            )

    def prepare_latents(self, batch_size, num_channels_latents, height, width, dtype, device, generator, latents=None):
        """Return noise of the shape of latents, or the latents that are passed."""
        if latents is not None:
            return latents.to(device=device, dtype=dtype)
        shape = (batch_size, num_channels_latents, height // self.vae_scale_factor, width // self.vae_scale_factor)
        if isinstance(generator, list) and len(generator) != batch_size:
            raise ValueError(f"There are {len(generator)} generators for a batch of {batch_size}.")
        return randn_tensor(shape, generator=generator, device=device, dtype=dtype)

    @property
    def guidance_scale(self):
        return self._guidance_scale

    @property
    def do_classifier_free_guidance(self):
        return self._guidance_scale > 1.0

    @property
    def num_timesteps(self):
        return self._num_timesteps

    @property
    def interrupt(self):
        return self._interrupt

    @torch.no_grad()
    def __call__(
        self,
        prompt: str | list[str] | None = None,
        negative_prompt: str | list[str] | None = None,
        height: int = 1024,
        width: int = 1024,
        num_inference_steps: int = 28,
        sigmas: list[float] | None = None,
        guidance_scale: float = 4.0,
        num_images_per_prompt: int = 1,
        generator: torch.Generator | list[torch.Generator] | None = None,
        latents: torch.Tensor | None = None,
        prompt_embeds: torch.Tensor | None = None,
        negative_prompt_embeds: torch.Tensor | None = None,
        output_type: str = "pil",
        return_dict: bool = True,
        callback_on_step_end: Callable[[Any, int, int, dict], dict] | None = None,
        callback_on_step_end_tensor_inputs: list[str] = ["latents"],
        max_sequence_length: int = 256,
    ):
        r"""
        Generate images.

        Args:
            prompt (`str` or `list[str]`, *optional*): the prompt or prompts; alternatively pass `prompt_embeds`.
            negative_prompt (`str` or `list[str]`, *optional*): the prompt or prompts not to guide towards; empty by default.
            height (`int`, defaults to 1024): size of the images in pixels.
            width (`int`, defaults to 1024): size of the images in pixels.
            num_inference_steps (`int`, defaults to 28): number of denoising steps.
            sigmas (`list[float]`, *optional*): noise levels of the steps, before shifting.
            guidance_scale (`float`, defaults to 4.0): classifier-free guidance scale; 1 disables guidance.
            num_images_per_prompt (`int`, defaults to 1): number of images per prompt.
            generator (`torch.Generator` or a list of them, *optional*): generators for the initial noise.
            latents (`torch.Tensor`, *optional*): initial noise.
            prompt_embeds (`torch.Tensor`, *optional*): prompt embeddings, one row per image.
            negative_prompt_embeds (`torch.Tensor`, *optional*): negative prompt embeddings, one row per image.
            output_type (`str`, defaults to `"pil"`): `"pil"`, `"np"`, `"pt"`, or `"latent"`, which skips decoding.
            return_dict (`bool`, defaults to `True`): whether to return a [`LumenPipelineOutput`] or a tuple.
            callback_on_step_end (`Callable`, *optional*): called after every step with the pipeline, the number of
                the step, the timestep and the tensors below; its return value replaces them.
            callback_on_step_end_tensor_inputs (`list[str]`, defaults to `["latents"]`): the tensors passed to the callback.
            max_sequence_length (`int`, defaults to 256): longer prompts are truncated.

        Returns:
            [`LumenPipelineOutput`] or `tuple`: the images.
        """
        self.check_inputs(prompt, prompt_embeds, height, width, callback_on_step_end_tensor_inputs)
        self._guidance_scale = guidance_scale
        self._interrupt = False
        device = self._execution_device

        if prompt_embeds is None:
            prompt_embeds, _ = self.encode_prompt(prompt, num_images_per_prompt, max_sequence_length, device)
        if self.do_classifier_free_guidance and negative_prompt_embeds is None:
            if self.text_encoder is None:
                negative_prompt_embeds = torch.zeros_like(prompt_embeds)
            else:
                count = len(prompt_embeds) // num_images_per_prompt
                negative = negative_prompt if isinstance(negative_prompt, list) else [negative_prompt or ""] * count
                negative_prompt_embeds, _ = self.encode_prompt(
                    negative, num_images_per_prompt, max_sequence_length, device
                )

        latents = self.prepare_latents(
            len(prompt_embeds),
            self.transformer.config.in_channels,
            height,
            width,
            prompt_embeds.dtype,
            device,
            generator,
            latents,
        )

        sigmas = np.linspace(1.0, 1 / num_inference_steps, num_inference_steps) if sigmas is None else sigmas
        accepts_sigmas = "sigmas" in inspect.signature(self.scheduler.set_timesteps).parameters
        if accepts_sigmas:
            self.scheduler.set_timesteps(sigmas=sigmas, device=device)
        else:
            self.scheduler.set_timesteps(num_inference_steps, device=device)
        timesteps = self.scheduler.timesteps
        self._num_timesteps = len(timesteps)

        with self.progress_bar(total=len(timesteps)) as progress_bar:
            for i, t in enumerate(timesteps):
                if self.interrupt:
                    continue
                timestep = (t / self.scheduler.config.num_train_timesteps).expand(latents.shape[0]).to(latents.dtype)
                noise_pred = self.transformer(
                    hidden_states=latents,
                    timestep=timestep,
                    encoder_hidden_states=prompt_embeds,
                    return_dict=False,
                )[0]
                if self.do_classifier_free_guidance:
                    negative_pred = self.transformer(
                        hidden_states=latents,
                        timestep=timestep,
                        encoder_hidden_states=negative_prompt_embeds,
                        return_dict=False,
                    )[0]
                    noise_pred = negative_pred + self.guidance_scale * (noise_pred - negative_pred)

                latents = self.scheduler.step(noise_pred, t, latents, return_dict=False)[0]

                if callback_on_step_end is not None:
                    known = {"latents": latents, "prompt_embeds": prompt_embeds}
                    given = {name: known[name] for name in callback_on_step_end_tensor_inputs}
                    changed = callback_on_step_end(self, i, t, given)
                    latents = changed.pop("latents", latents)
                    prompt_embeds = changed.pop("prompt_embeds", prompt_embeds)
                progress_bar.update()

        if output_type == "latent":
            image = latents
        else:
            latents = latents / self.vae.config.scaling_factor + (self.vae.config.shift_factor or 0.0)
            image = self.vae.decode(latents.to(self.vae.dtype), return_dict=False)[0]
            image = self.image_processor.postprocess(image, output_type=output_type)

        self.maybe_free_model_hooks()
        if not return_dict:
            return (image,)
        return LumenPipelineOutput(images=image)
