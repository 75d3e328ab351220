"""FluxPipeline.__call__ in parts: up to its first step, around each step, and after the last (diffusers/pipelines/flux/pipeline_flux.py:654)."""

import contextlib
import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from diffusers import AutoencoderKL, FluxPipeline
from diffusers.pipelines.flux.pipeline_flux import XLA_AVAILABLE, calculate_shift, retrieve_timesteps

_ARGUMENTS = (
    "hidden_states",
    "encoder_hidden_states",
    "pooled_projections",
    "timestep",
    "img_ids",
    "txt_ids",
    "guidance",
    "joint_attention_kwargs",
    "controlnet_block_samples",
    "controlnet_single_block_samples",
    "return_dict",
    "controlnet_blocks_repeat",
)  # of the denoiser


@dataclass
class State:
    """The variables of the call that one part passes to the next."""

    do_true_cfg: Any = None
    guidance: Any = None
    height: Any = None
    image_embeds: Any = None
    latent_image_ids: Any = None
    latents: Any = None
    negative_image_embeds: Any = None
    negative_pooled_prompt_embeds: Any = None
    negative_prompt_embeds: Any = None
    negative_text_ids: Any = None
    noise_pred: Any = None
    output_type: Any = None
    pooled_prompt_embeds: Any = None
    prompt_embeds: Any = None
    text_ids: Any = None
    timestep: Any = None
    timesteps: Any = None
    true_cfg_scale: Any = None
    width: Any = None


class Pending:
    """An output that does not exist yet; values derived from it are pending too."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *args, **kwargs):
        return self

    __getitem__ = __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __neg__ = __call__

    def chunk(self, count, dim=0):
        return (self,) * count

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        return cls()


class Denoiser:
    """Stands where FluxPipeline has its denoiser: records its calls, then returns SGLang's predictions."""

    def __init__(self, model):
        self.model = model
        self.asked: list[dict[str, Any]] = []
        self.answers: list | None = None

    def __call__(self, *args, **kwargs):
        if self.answers is not None:
            return self.answers.pop(0)
        self.asked.append({**dict(zip(_ARGUMENTS, args, strict=False)), **kwargs})
        return Pending()

    def cache_context(self, name: str, **place):
        """SGLang has its own caches."""
        return contextlib.nullcontext()

    def __getattr__(self, name: str):
        """What FluxPipeline asks of the model itself."""
        if name in ("model", "asked", "answers"):
            raise AttributeError(name)
        return getattr(self.model, name)


class FluxT2iSteps(FluxPipeline):
    """The parts of FluxPipeline.__call__ as diffusers 0.37.0 has them, in the order in which stages call them."""

    _own_device: torch.device

    @classmethod
    def assembled(cls, folder: str, parts: dict[str, Any], device: torch.device) -> "FluxT2iSteps":
        """FluxPipeline with the components that SGLang loaded, and its autoencoder without weights."""
        config = FluxPipeline.load_config(folder)
        options = {name: config[name] for name in () if name in config}
        absent = {name: None for name in ()}
        with torch.device("meta"):
            vae = AutoencoderKL.from_config(AutoencoderKL.load_config(folder, subfolder="vae"))
        steps = FluxPipeline(**{**absent, **parts, **options, "vae": vae})
        steps.__class__ = cls
        steps._own_device = device
        return steps

    def for_request(self) -> "FluxT2iSteps":
        """The pipeline for one request, with its own step counter."""
        steps = copy.copy(self)
        steps.scheduler = copy.deepcopy(self.scheduler)
        steps.transformer = Denoiser(self.transformer)
        return steps

    @property
    def _execution_device(self):
        return self._own_device

    @property
    def device(self):
        """The device on which noise is drawn."""
        return self._own_device

    def asked(self, state: State, i, t) -> list[dict[str, Any]]:
        """The denoiser's calls at this step, once what comes before them is done."""
        self.before_denoiser(state, i, t)
        self.transformer.asked, self.transformer.answers = [], None
        self.ask_denoiser(copy.copy(state), i, t)
        return self.transformer.asked

    def answered(self, state: State, i, t, answers: list) -> None:
        """Continue with the denoiser's outputs for these calls."""
        self.transformer.answers = answers
        self.ask_denoiser(state, i, t)

    def before_steps(
        self,
        prompt=None,
        prompt_2=None,
        negative_prompt=None,
        negative_prompt_2=None,
        true_cfg_scale=1.0,
        height=None,
        width=None,
        num_inference_steps=28,
        sigmas=None,
        guidance_scale=3.5,
        num_images_per_prompt=1,
        generator=None,
        latents=None,
        prompt_embeds=None,
        pooled_prompt_embeds=None,
        ip_adapter_image=None,
        ip_adapter_image_embeds=None,
        negative_ip_adapter_image=None,
        negative_ip_adapter_image_embeds=None,
        negative_prompt_embeds=None,
        negative_pooled_prompt_embeds=None,
        output_type="pil",
        return_dict=True,
        joint_attention_kwargs=None,
        callback_on_step_end=None,
        callback_on_step_end_tensor_inputs=["latents"],
        max_sequence_length=512,
    ) -> State:
        """Prompts, noise, steps and conditions (diffusers/pipelines/flux/pipeline_flux.py:654)."""
        negative_text_ids = None
        height = height or self.default_sample_size * self.vae_scale_factor
        width = width or self.default_sample_size * self.vae_scale_factor

        # 1. Check inputs. Raise error if not correct
        self.check_inputs(
            prompt,
            prompt_2,
            height,
            width,
            negative_prompt=negative_prompt,
            negative_prompt_2=negative_prompt_2,
            prompt_embeds=prompt_embeds,
            negative_prompt_embeds=negative_prompt_embeds,
            pooled_prompt_embeds=pooled_prompt_embeds,
            negative_pooled_prompt_embeds=negative_pooled_prompt_embeds,
            callback_on_step_end_tensor_inputs=callback_on_step_end_tensor_inputs,
            max_sequence_length=max_sequence_length,
        )

        self._guidance_scale = guidance_scale
        self._joint_attention_kwargs = joint_attention_kwargs
        self._current_timestep = None
        self._interrupt = False

        # 2. Define call parameters
        if prompt is not None and isinstance(prompt, str):
            batch_size = 1
        elif prompt is not None and isinstance(prompt, list):
            batch_size = len(prompt)
        else:
            batch_size = prompt_embeds.shape[0]

        device = self._execution_device

        lora_scale = self.joint_attention_kwargs.get("scale", None) if self.joint_attention_kwargs is not None else None
        has_neg_prompt = negative_prompt is not None or (
            negative_prompt_embeds is not None and negative_pooled_prompt_embeds is not None
        )
        do_true_cfg = true_cfg_scale > 1 and has_neg_prompt
        (
            prompt_embeds,
            pooled_prompt_embeds,
            text_ids,
        ) = self.encode_prompt(
            prompt=prompt,
            prompt_2=prompt_2,
            prompt_embeds=prompt_embeds,
            pooled_prompt_embeds=pooled_prompt_embeds,
            device=device,
            num_images_per_prompt=num_images_per_prompt,
            max_sequence_length=max_sequence_length,
            lora_scale=lora_scale,
        )
        if do_true_cfg:
            (
                negative_prompt_embeds,
                negative_pooled_prompt_embeds,
                negative_text_ids,
            ) = self.encode_prompt(
                prompt=negative_prompt,
                prompt_2=negative_prompt_2,
                prompt_embeds=negative_prompt_embeds,
                pooled_prompt_embeds=negative_pooled_prompt_embeds,
                device=device,
                num_images_per_prompt=num_images_per_prompt,
                max_sequence_length=max_sequence_length,
                lora_scale=lora_scale,
            )

        # 4. Prepare latent variables
        num_channels_latents = self.transformer.config.in_channels // 4
        latents, latent_image_ids = self.prepare_latents(
            batch_size * num_images_per_prompt,
            num_channels_latents,
            height,
            width,
            prompt_embeds.dtype,
            device,
            generator,
            latents,
        )

        # 5. Prepare timesteps
        sigmas = np.linspace(1.0, 1 / num_inference_steps, num_inference_steps) if sigmas is None else sigmas
        if hasattr(self.scheduler.config, "use_flow_sigmas") and self.scheduler.config.use_flow_sigmas:
            sigmas = None
        image_seq_len = latents.shape[1]
        mu = calculate_shift(
            image_seq_len,
            self.scheduler.config.get("base_image_seq_len", 256),
            self.scheduler.config.get("max_image_seq_len", 4096),
            self.scheduler.config.get("base_shift", 0.5),
            self.scheduler.config.get("max_shift", 1.15),
        )

        if XLA_AVAILABLE:
            timestep_device = "cpu"
        else:
            timestep_device = device
        timesteps, num_inference_steps = retrieve_timesteps(
            self.scheduler,
            num_inference_steps,
            timestep_device,
            sigmas=sigmas,
            mu=mu,
        )
        num_warmup_steps = max(len(timesteps) - num_inference_steps * self.scheduler.order, 0)
        self._num_timesteps = len(timesteps)

        # handle guidance
        if self.transformer.config.guidance_embeds:
            guidance = torch.full([1], guidance_scale, device=device, dtype=torch.float32)
            guidance = guidance.expand(latents.shape[0])
        else:
            guidance = None

        if (ip_adapter_image is not None or ip_adapter_image_embeds is not None) and (
            negative_ip_adapter_image is None and negative_ip_adapter_image_embeds is None
        ):
            negative_ip_adapter_image = np.zeros((width, height, 3), dtype=np.uint8)
            negative_ip_adapter_image = [negative_ip_adapter_image] * self.transformer.encoder_hid_proj.num_ip_adapters

        elif (ip_adapter_image is None and ip_adapter_image_embeds is None) and (
            negative_ip_adapter_image is not None or negative_ip_adapter_image_embeds is not None
        ):
            ip_adapter_image = np.zeros((width, height, 3), dtype=np.uint8)
            ip_adapter_image = [ip_adapter_image] * self.transformer.encoder_hid_proj.num_ip_adapters

        if self.joint_attention_kwargs is None:
            self._joint_attention_kwargs = {}

        image_embeds = None
        negative_image_embeds = None
        if ip_adapter_image is not None or ip_adapter_image_embeds is not None:
            image_embeds = self.prepare_ip_adapter_image_embeds(
                ip_adapter_image,
                ip_adapter_image_embeds,
                device,
                batch_size * num_images_per_prompt,
            )
        if negative_ip_adapter_image is not None or negative_ip_adapter_image_embeds is not None:
            negative_image_embeds = self.prepare_ip_adapter_image_embeds(
                negative_ip_adapter_image,
                negative_ip_adapter_image_embeds,
                device,
                batch_size * num_images_per_prompt,
            )

        # 6. Denoising loop
        # We set the index here to remove DtoH sync, helpful especially during compilation.
        # Check out more details here: https://github.com/huggingface/diffusers/pull/11696
        self.scheduler.set_begin_index(0)
        return State(
            do_true_cfg=do_true_cfg,
            guidance=guidance,
            height=height,
            image_embeds=image_embeds,
            latent_image_ids=latent_image_ids,
            latents=latents,
            negative_image_embeds=negative_image_embeds,
            negative_pooled_prompt_embeds=negative_pooled_prompt_embeds,
            negative_prompt_embeds=negative_prompt_embeds,
            negative_text_ids=negative_text_ids,
            output_type=output_type,
            pooled_prompt_embeds=pooled_prompt_embeds,
            prompt_embeds=prompt_embeds,
            text_ids=text_ids,
            timesteps=timesteps,
            true_cfg_scale=true_cfg_scale,
            width=width,
        )

    def before_denoiser(self, state: State, i, t) -> None:
        """What happens at a step before the denoiser is asked (diffusers/pipelines/flux/pipeline_flux.py:938)."""
        image_embeds = state.image_embeds
        latents = state.latents
        self._current_timestep = t
        if image_embeds is not None:
            self._joint_attention_kwargs["ip_adapter_image_embeds"] = image_embeds
        # broadcast to batch dimension in a way that's compatible with ONNX/Core ML
        timestep = t.expand(latents.shape[0]).to(latents.dtype)
        state.timestep = timestep

    def ask_denoiser(self, state: State, i, t) -> None:
        """The calls of the denoiser (diffusers/pipelines/flux/pipeline_flux.py:938)."""
        do_true_cfg = state.do_true_cfg
        guidance = state.guidance
        latent_image_ids = state.latent_image_ids
        latents = state.latents
        negative_image_embeds = state.negative_image_embeds
        negative_pooled_prompt_embeds = state.negative_pooled_prompt_embeds
        negative_prompt_embeds = state.negative_prompt_embeds
        negative_text_ids = state.negative_text_ids
        pooled_prompt_embeds = state.pooled_prompt_embeds
        prompt_embeds = state.prompt_embeds
        text_ids = state.text_ids
        timestep = state.timestep
        true_cfg_scale = state.true_cfg_scale
        with self.transformer.cache_context("cond"):
            noise_pred = self.transformer(
                hidden_states=latents,
                timestep=timestep / 1000,
                guidance=guidance,
                pooled_projections=pooled_prompt_embeds,
                encoder_hidden_states=prompt_embeds,
                txt_ids=text_ids,
                img_ids=latent_image_ids,
                joint_attention_kwargs=self.joint_attention_kwargs,
                return_dict=False,
            )[0]

        if do_true_cfg:
            if negative_image_embeds is not None:
                self._joint_attention_kwargs["ip_adapter_image_embeds"] = negative_image_embeds

            with self.transformer.cache_context("uncond"):
                neg_noise_pred = self.transformer(
                    hidden_states=latents,
                    timestep=timestep / 1000,
                    guidance=guidance,
                    pooled_projections=negative_pooled_prompt_embeds,
                    encoder_hidden_states=negative_prompt_embeds,
                    txt_ids=negative_text_ids,
                    img_ids=latent_image_ids,
                    joint_attention_kwargs=self.joint_attention_kwargs,
                    return_dict=False,
                )[0]
            noise_pred = neg_noise_pred + true_cfg_scale * (noise_pred - neg_noise_pred)
        state.noise_pred = noise_pred

    def after_denoiser(self, state: State, i, t) -> None:
        """Guidance and the scheduler's step (diffusers/pipelines/flux/pipeline_flux.py:938)."""
        latents = state.latents
        noise_pred = state.noise_pred
        # compute the previous noisy sample x_t -> x_t-1
        latents_dtype = latents.dtype
        latents = self.scheduler.step(noise_pred, t, latents, return_dict=False)[0]

        if latents.dtype != latents_dtype:
            if torch.backends.mps.is_available():
                # some platforms (eg. apple mps) misbehave due to a pytorch bug: https://github.com/pytorch/pytorch/pull/99272
                latents = latents.to(latents_dtype)
        state.latents = latents
