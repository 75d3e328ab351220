"""The conditions of WanTransformer3DModel: WanPipeline without its denoiser."""

import contextlib
import copy
import inspect
from types import FunctionType
from typing import Any

import diffusers
import torch
from diffusers import WanPipeline, WanTransformer3DModel
from transformers import PreTrainedModel
from veomni.distributed.parallel_state import get_parallel_state
from veomni.utils.device import get_device_type

from .configuration_wan_condition import WanConditionConfig

_LATENTS, _STEP = "hidden_states", "timestep"
_ARGUMENTS = tuple(inspect.signature(WanTransformer3DModel.forward).parameters)[1:]


class WanConditionModel(PreTrainedModel):
    """Encoders, autoencoder and scheduler; frozen, and never shared among processes."""

    config_class = WanConditionConfig
    supports_gradient_checkpointing = False

    def __init__(self, config: WanConditionConfig, meta_init: bool = False, **kwargs):
        super().__init__(config, **kwargs)
        self.generator = torch.Generator(device=torch.device(get_device_type()))
        self.generator.manual_seed((config.seed or 0) + max(get_parallel_state().dp_rank, 0))
        self.pipeline: WanPipeline | None = None
        self._schedules: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._load_components(meta_init)

    def _load_components(self, meta_init: bool) -> None:
        """The scheduler; and the encoders and the autoencoder, unless conditions are there already."""
        base = self.config.base_model_path
        index = WanPipeline.load_config(base)
        scheduler = getattr(diffusers, index["scheduler"][1])
        self.scheduler = scheduler.from_pretrained(base, subfolder=self.config.scheduler_subfolder)
        if meta_init:
            return
        dtypes = {"default": getattr(torch, self.config.torch_dtype_of_encoders), "vae": torch.float32}
        self.pipeline = WanPipeline.from_pretrained(base, transformer=None, torch_dtype=dtypes)
        self.pipeline.set_progress_bar_config(disable=True)
        for name, part in self.pipeline.components.items():
            if isinstance(part, torch.nn.Module):
                setattr(self, name, part.requires_grad_(False).eval())

    @torch.no_grad()
    def get_condition(self, inputs, images=None, videos=None, **kwargs) -> dict[str, list[Any]]:
        """What the denoiser is given for each sample, and clean latents in its own layout.

        Args:
            inputs: a prompt for each sample.
            images, videos: one for each sample; pictures, or frames [frames, 3, rows, columns], as bytes or up to 1.
        """
        if self.pipeline is None:
            raise ValueError("this model was built with meta_init: it has no encoders")
        prompts = inputs if isinstance(inputs, list) else [inputs]
        media = videos if any(one is not None and len(one) for one in videos or []) else images
        found = [self._condition(prompt, _only(medium)) for prompt, medium in zip(prompts, media, strict=True)]
        return {name: [one.get(name) for one in found] for name in dict.fromkeys(name for one in found for name in one)}

    def _condition(self, prompt, medium) -> dict[str, Any]:
        """Runs the pipeline up to its denoiser, with clean latents in the place of its noise."""
        pixels = self._pixels(medium)
        latents = self._normalised(self._encoded(pixels))
        pipeline = copy.copy(self.pipeline)
        pipeline.transformer = recorder = _Recorder(self.config.base_model_path, pixels.device)
        pipeline.prepare_latents, used = _preparing(pipeline, latents)
        asked = {
            "prompt": prompt, "height": pixels.shape[-2], "width": pixels.shape[-1],
            "num_frames": pixels.shape[2] if pixels.dim() == 5 else None,
            "guidance_scale": self.config.guidance_scale, "num_inference_steps": 2, "output_type": "latent",
            "max_sequence_length": self.config.max_sequence_length, "use_resolution_binning": False,
        }  # fmt: skip
        taken = inspect.signature(pipeline.__call__).parameters
        with contextlib.suppress(_Recorded):
            pipeline(**{name: value for name, value in asked.items() if name in taken and value is not None})
        given = {name: value for name, value in recorder.given.items() if name in _ARGUMENTS and name != "return_dict"}
        given = {name: value for name, value in given.items() if value is not None and not _nothing(value)}
        self._check(given, latents, used, pipeline.scheduler)
        clean = given.pop(_LATENTS)
        del given[_STEP]
        return {"latents": clean[0] if isinstance(clean, list) else clean, **given}

    def _check(self, given, latents, used, scheduler) -> None:
        """Raises where the pipeline does otherwise than this model was derived for."""
        clean = given[_LATENTS][0] if isinstance(given[_LATENTS], list) else given[_LATENTS]
        if len(used) != 1 or clean.numel() != latents.numel():
            raise ValueError("WanPipeline hands its denoiser more than the latents that it prepared: finish _condition")
        step = given[_STEP].flatten()[0].float()
        expected = _step(scheduler.timesteps[0].to(step.device)).float()
        if not torch.allclose(step, expected, rtol=1e-2, atol=1e-2 * abs(1.0) * 1000):
            raise ValueError(
                f"WanPipeline calls step {float(scheduler.timesteps[0])} {float(step)}, not {float(expected)}"
            )

    def _pixels(self, medium) -> torch.Tensor:
        """[1, 3, rows, columns] or [1, 3, frames, rows, columns], from -1 to 1, of sizes that the pipeline takes."""
        if isinstance(medium, torch.Tensor):
            medium = medium / 255 if not medium.is_floating_point() or medium.max() > 1 else medium
        device = next(self.vae.parameters()).device
        if isinstance(medium, torch.Tensor) and medium.dim() == 4:
            return self.pipeline.video_processor.preprocess_video(medium).to(device, torch.float32)
        processor = getattr(self.pipeline, "image_processor", None) or self.pipeline.video_processor
        pixels = processor.preprocess(medium).to(device, torch.float32)
        return pixels.unsqueeze(2) if self._of_videos else pixels

    @property
    def _of_videos(self) -> bool:
        """Whether the autoencoder's convolutions go along frames."""
        return any(parameter.dim() == 5 for parameter in self.vae.parameters())

    def _encoded(self, pixels: torch.Tensor) -> torch.Tensor:
        answer = self.vae.encode(pixels)
        return answer.latent_dist.mode() if hasattr(answer, "latent_dist") else answer[0]

    def _normalised(self, latents: torch.Tensor) -> torch.Tensor:
        """Latents as the denoiser knows them: mean and deviation."""
        # diffusers/pipelines/wan/pipeline_wan.py:652
        shape = (1, -1, *[1] * (latents.dim() - 2))
        mean, deviation = (
            torch.as_tensor(values, device=latents.device, dtype=latents.dtype).view(shape)
            for values in (self.vae.config.latents_mean, self.vae.config.latents_std)
        )
        return (latents - mean) / deviation

    def process_condition(
        self,
        latents,
        encoder_hidden_states=None,
        encoder_hidden_states_image=None,
        attention_kwargs=None,
        **kwargs,
    ) -> dict[str, list[Any]]:
        """Noise and targets for clean latents: every key is an argument of the transformer's forward."""
        noisy, steps, targets = [], [], []
        for clean in latents:
            clean = clean.to(self.generator.device)
            sample, step, target = self._noised(clean)
            noisy.append(sample)
            steps.append(_step(step))
            targets.append(target)
        given = {
            "encoder_hidden_states": encoder_hidden_states,
            "encoder_hidden_states_image": encoder_hidden_states_image,
            "attention_kwargs": attention_kwargs,
        }
        return {
            "hidden_states": noisy,
            "timestep": steps,
            "training_target": targets,
            "latents": latents,
            **{name: values for name, values in given.items() if values is not None},
        }

    def _noised(self, clean: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Latents with noise, the step [1] of the scheduler that it is of, and what the transformer is to answer."""
        timesteps, sigmas = self._schedule(clean)
        index = torch.randint(len(timesteps), (1,), device=clean.device, generator=self.generator)
        noise = torch.randn(clean.shape, device=clean.device, dtype=clean.dtype, generator=self.generator)
        step = timesteps[index]
        if self._flows:
            sigma, inverted = sigmas[index].to(clean.dtype), self.scheduler.config.get("invert_sigmas", False)
            start, end = (noise, clean) if inverted else (clean, noise)  # of the way that sigma goes from 0 to 1
            return (1 - sigma) * start + sigma * end, step, end - start
        signal = self.scheduler.alphas_cumprod.to(clean.device)[step.long()].to(clean.dtype)
        sample = signal.sqrt() * clean + (1 - signal).sqrt() * noise
        targets = {
            "epsilon": noise,
            "v_prediction": signal.sqrt() * noise - (1 - signal).sqrt() * clean,
            "sample": clean,
        }
        return sample, step, targets[self.scheduler.config.prediction_type]

    @property
    def _flows(self) -> bool:
        """Whether the scheduler is one of flow matching."""
        predicted = self.scheduler.config.get("prediction_type")
        return predicted == "flow_prediction" or not hasattr(self.scheduler, "alphas_cumprod")

    def _schedule(self, clean: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The scheduler's steps and noise levels, [steps] each; with its shift for that many tokens, if it has one."""
        tokens = clean.shape[1] if clean.dim() == 3 else clean[0, 0].numel() // 4  # patches
        if tokens not in self._schedules:
            scheduler, config = copy.deepcopy(self.scheduler), self.scheduler.config
            shift = {}
            if config.get("use_dynamic_shifting"):
                few, many = config.get("base_image_seq_len", 256), config.get("max_image_seq_len", 4096)
                low, high = config.get("base_shift", 0.5), config.get("max_shift", 1.15)
                shift["mu"] = low + (tokens - few) * (high - low) / (many - few)
            steps = min(self.config.num_train_timesteps, config.num_train_timesteps)
            scheduler.set_timesteps(steps, device=clean.device, **shift)
            sigmas = getattr(scheduler, "sigmas", torch.zeros(len(scheduler.timesteps) + 1))
            self._schedules[tokens] = scheduler.timesteps, sigmas[: len(scheduler.timesteps)].to(clean.device)
        return self._schedules[tokens]


def _step(step: torch.Tensor) -> torch.Tensor:
    """A step of the scheduler as the pipeline hands it to the transformer."""
    # diffusers/pipelines/wan/pipeline_wan.py:608
    return step


class _Recorded(Exception):
    """Ends a pipeline's call where its denoiser would begin."""


class _Recorder:
    """Stands in the denoiser's place: has its config, and keeps what it is called with."""

    dtype = torch.float32

    def __init__(self, base: str, device: torch.device):
        values = WanTransformer3DModel.load_config(base, subfolder="transformer")
        signature = inspect.signature(WanTransformer3DModel.__init__).parameters
        defaults = {name: one.default for name, one in signature.items() if one.default is not one.empty}
        self.config = diffusers.configuration_utils.FrozenDict({**defaults, **values})
        self.device = device
        self.given: dict[str, Any] = {}

    def __call__(self, *args, **kwargs):
        self.given = {**dict(zip(_ARGUMENTS, args, strict=False)), **kwargs}
        raise _Recorded

    def cache_context(self, name: str):
        """diffusers' caches are of no use here."""
        return contextlib.nullcontext()

    def __getattr__(self, name: str):
        """What pipelines ask the model itself, and it has from its config."""
        if name in ("config", "given") or name not in self.config:
            raise AttributeError(name)
        return self.config[name]


def _preparing(pipeline, latents: torch.Tensor):
    """The pipeline's own prepare_latents, in which noise is these latents; and a list of how often it was asked for."""
    method, used = type(pipeline).prepare_latents, []

    def given(shape, *args, **kwargs):
        used.append(shape)
        return latents.reshape(tuple(shape))

    names = {**method.__globals__, "randn_tensor": given}
    changed = FunctionType(method.__code__, names, method.__name__, method.__defaults__, method.__closure__)
    changed.__kwdefaults__ = method.__kwdefaults__
    return changed.__get__(pipeline), used


def _nothing(value) -> bool:
    """Whether a value is a bag of settings without any."""
    return isinstance(value, dict) and not value


def _only(media):
    """The one picture or video of a sample."""
    if isinstance(media, (list, tuple)):
        if len(media) != 1:
            raise ValueError(f"a sample has one target, not {len(media)}")
        return media[0]
    return media
