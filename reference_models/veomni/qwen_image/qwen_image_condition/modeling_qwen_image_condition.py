"""The conditions of QwenImageTransformer2DModel: QwenImagePipeline without its denoiser."""

import contextlib
import copy
import inspect
import zlib
from types import FunctionType
from typing import Any

import diffusers
import torch
from diffusers import QwenImagePipeline, QwenImageTransformer2DModel
from transformers import PreTrainedModel
from veomni.distributed.parallel_state import get_parallel_state
from veomni.utils.device import get_device_type

from .configuration_qwen_image_condition import QwenImageConditionConfig

_LATENTS, _STEP = "hidden_states", "timestep"
_ARGUMENTS = tuple(inspect.signature(QwenImageTransformer2DModel.forward).parameters)[1:]


class QwenImageConditionModel(PreTrainedModel):
    """Encoders, autoencoder and scheduler; frozen and never sharded."""

    config_class = QwenImageConditionConfig
    supports_gradient_checkpointing = False

    def __init__(self, config: QwenImageConditionConfig, meta_init: bool = False, **kwargs):
        super().__init__(config, **kwargs)
        self.generator = torch.Generator(device=torch.device(get_device_type()))
        self.generator.manual_seed((config.seed or 0) + max(get_parallel_state().dp_rank, 0))
        self._step_number: int | None = None
        self._drawn = 0
        self.pipeline: QwenImagePipeline | None = None
        self._load_components(meta_init)

    def _load_components(self, meta_init: bool) -> None:
        """Load the scheduler, and the encoders and autoencoder unless conditions are stored."""
        base = self.config.base_model_path
        index = QwenImagePipeline.load_config(base)
        scheduler = getattr(diffusers, index["scheduler"][1])
        self.scheduler = scheduler.from_pretrained(base, subfolder=self.config.scheduler_subfolder)
        if meta_init:
            return
        dtypes = {"default": getattr(torch, self.config.torch_dtype_of_encoders), "vae": torch.float32}
        self.pipeline = QwenImagePipeline.from_pretrained(base, transformer=None, torch_dtype=dtypes)
        self.pipeline.set_progress_bar_config(disable=True)
        for name, part in self.pipeline.components.items():
            if isinstance(part, torch.nn.Module):
                setattr(self, name, part.requires_grad_(False).eval())

    def begin_step(self, number: int) -> None:
        """Draw the noise of this step from its number: trainers do not save a generator's state."""
        self._step_number, self._drawn = number, 0

    @torch.no_grad()
    def get_condition(self, inputs, images=None, videos=None, **kwargs) -> dict[str, list[Any]]:
        """The denoiser's inputs for each sample, and clean latents in its own layout.

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
        """Run the pipeline up to its denoiser, with clean latents instead of its noise."""
        pixels = self._pixels(medium)
        latents = self._normalised(self._encoded(pixels))
        pipeline = copy.copy(self.pipeline)
        pipeline.transformer = recorder = _Recorder(self.config.base_model_path, pixels.device)
        pipeline.prepare_latents, used = _preparing(pipeline, latents)
        asked = {
            "prompt": prompt, "height": pixels.shape[-2], "width": pixels.shape[-1],
            "num_frames": pixels.shape[2] if pixels.dim() == 5 else None,
            "guidance_scale": self.config.guidance_scale, "num_inference_steps": self._steps, "output_type": "latent",
            "max_sequence_length": self.config.max_sequence_length, "use_resolution_binning": False,
        }  # fmt: skip
        taken = inspect.signature(pipeline.__call__).parameters
        with _seeded(f"{self.config.seed} {prompt}", pixels.device), contextlib.suppress(_Recorded):
            pipeline(**{name: value for name, value in asked.items() if name in taken and value is not None})
        given = {name: value for name, value in recorder.given.items() if name in _ARGUMENTS and name != "return_dict"}
        given = {name: value for name, value in given.items() if _is_data(value)}
        whole, step = given.pop(_LATENTS), given.pop(_STEP)
        whole = whole[0] if isinstance(whole, list) else whole
        clean = _leading(whole, latents)
        self._check(clean, used, step, pipeline.scheduler)
        beside = {} if clean.shape == whole.shape else {"concatenated": whole}
        return {"latents": clean, "noise_schedule": _schedule(pipeline.scheduler), **beside, **given}

    @property
    def _steps(self) -> int:
        """All scheduler steps, so that this schedule contains every step of a shorter one."""
        return min(self.config.num_train_timesteps, self.scheduler.config.num_train_timesteps)

    def _check(self, clean, used, step, scheduler) -> None:
        """Raise if the pipeline behaves differently from the one this model was derived from."""
        if len(used) != 1 or clean is None:
            raise ValueError(
                "QwenImagePipeline does not pass its denoiser the latents that it prepared: finish _condition"
            )
        step = step.flatten()[0].float()
        expected = _step(scheduler.timesteps[0].to(step.device)).float()
        if not torch.allclose(step, expected, rtol=1e-2, atol=1e-2 * abs(0.001) * 1000):
            raise ValueError(
                f"QwenImagePipeline calls step {float(scheduler.timesteps[0])} {float(step)}, not {float(expected)}"
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
        """Whether the autoencoder convolves over frames."""
        return any(parameter.dim() == 5 for parameter in self.vae.parameters())

    def _encoded(self, pixels: torch.Tensor) -> torch.Tensor:
        of_pictures = pixels.dim() == 5 and not self._of_videos  # such an autoencoder encodes a video frame by frame
        answer = self.vae.encode(pixels[0].transpose(0, 1) if of_pictures else pixels)
        latents = answer.latent_dist.mode() if hasattr(answer, "latent_dist") else answer[0]
        return latents.transpose(0, 1)[None] if of_pictures else latents

    def _normalised(self, latents: torch.Tensor) -> torch.Tensor:
        """Latents in the denoiser's scale: mean and deviation."""
        # diffusers/pipelines/qwenimage/pipeline_qwenimage.py:742
        shape = (1, -1, *[1] * (latents.dim() - 2))
        mean, deviation = (
            torch.as_tensor(values, device=latents.device, dtype=latents.dtype).view(shape)
            for values in (self.vae.config.latents_mean, self.vae.config.latents_std)
        )
        return (latents - mean) / deviation

    def process_condition(
        self,
        latents,
        noise_schedule,
        concatenated=None,
        encoder_hidden_states=None,
        encoder_hidden_states_mask=None,
        img_shapes=None,
        txt_seq_lens=None,
        guidance=None,
        attention_kwargs=None,
        controlnet_block_samples=None,
        additional_t_cond=None,
        **kwargs,
    ) -> dict[str, list[Any]]:
        """Noise and targets for clean latents: every key is an argument of the transformer's forward.

        Args:
            concatenated: clean latents with the conditions that the pipeline concatenates behind them.
        """
        noisy, steps, targets = [], [], []
        for clean, schedule, whole in zip(latents, noise_schedule, concatenated or latents, strict=True):
            self._seed_draw()
            sample, step, target = self._noised(*(one.to(self.generator.device) for one in (clean, schedule)))
            if concatenated is not None:
                sample = _leading_replaced(whole, sample)
            noisy.append(sample)
            steps.append(_step(step))
            targets.append(target)
        given = {
            "encoder_hidden_states": encoder_hidden_states,
            "encoder_hidden_states_mask": encoder_hidden_states_mask,
            "img_shapes": img_shapes,
            "txt_seq_lens": txt_seq_lens,
            "guidance": guidance,
            "attention_kwargs": attention_kwargs,
            "controlnet_block_samples": controlnet_block_samples,
            "additional_t_cond": additional_t_cond,
        }
        return {
            "hidden_states": noisy,
            "timestep": steps,
            "training_target": targets,
            "latents": latents,
            **{name: values for name, values in given.items() if values is not None},
        }

    def _seed_draw(self) -> None:
        """Seed the noise of a sample by its place in the step's batch, however many processes share that."""
        if self._step_number is None:
            return
        state, large = get_parallel_state(), 1_000_003
        place = self._drawn * max(state.dp_size, 1) + max(state.dp_rank, 0)
        self._drawn += 1
        self.generator.manual_seed((((self.config.seed or 0) * large + self._step_number) * large + place) % 2**63)

    def _noised(self, clean: torch.Tensor, schedule: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return noisy latents, their scheduler step [1], and the transformer's target.

        Steps are drawn uniformly from the pipeline's own schedule for latents of this size, [2, steps].
        """
        timesteps, sigmas = schedule
        index = torch.randint(len(timesteps), (1,), device=clean.device, generator=self.generator)
        noise = torch.randn(clean.shape, device=clean.device, dtype=clean.dtype, generator=self.generator)
        step, sigma = timesteps[index], sigmas[index].to(clean.dtype)
        if hasattr(self.scheduler, "precondition_outputs"):
            return self._preconditioned(clean, noise, step, sigma)
        if self._flows:
            inverted = self.scheduler.config.get("invert_sigmas", False)
            start, end = (noise, clean) if inverted else (clean, noise)  # of the way that sigma goes from 0 to 1
            return (1 - sigma) * start + sigma * end, step, end - start
        if not hasattr(self.scheduler, "alphas_cumprod"):
            raise NotImplementedError(f"write how {type(self.scheduler).__name__} adds noise")
        signal = self.scheduler.alphas_cumprod.to(clean.device)[step.long()].to(clean.dtype)
        sample = signal.sqrt() * clean + (1 - signal).sqrt() * noise
        targets = {
            "epsilon": noise,
            "v_prediction": signal.sqrt() * noise - (1 - signal).sqrt() * clean,
            "sample": clean,
        }
        return sample, step, targets[self.scheduler.config.prediction_type]

    def _preconditioned(self, clean, noise, step, sigma) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """The output that the scheduler's preconditioning turns into the clean latents."""
        noised = clean + sigma * noise
        self.scheduler._step_index = None
        offset = self.scheduler.precondition_outputs(noised, torch.zeros_like(noised), sigma)
        factor = self.scheduler.precondition_outputs(noised, torch.ones_like(noised), sigma) - offset
        return self.scheduler.precondition_inputs(noised, sigma), step, (clean - offset) / factor

    @property
    def _flows(self) -> bool:
        """Whether the scheduler is one of flow matching."""
        config = self.scheduler.config
        flows = config.get("prediction_type") == "flow_prediction" or config.get("use_flow_sigmas")
        return bool(flows) or "FlowMatch" in type(self.scheduler).__name__


def _schedule(scheduler) -> torch.Tensor:
    """The steps and noise levels that a pipeline has set, [2, steps]."""
    timesteps = torch.as_tensor(scheduler.timesteps).detach().cpu().float()
    sigmas = torch.as_tensor(getattr(scheduler, "sigmas", torch.zeros(len(timesteps)))).detach().cpu().float()
    return torch.stack([timesteps, sigmas[: len(timesteps)]])


def _step(step: torch.Tensor) -> torch.Tensor:
    """A scheduler step as the pipeline passes it to the transformer."""
    # diffusers/pipelines/qwenimage/pipeline_qwenimage.py:681
    return step / 1000


class _Recorded(Exception):
    """Stop a pipeline's call at its denoiser."""


class _Recorder:
    """Replace the denoiser: has its config, and records its arguments."""

    dtype = torch.float32

    def __init__(self, base: str, device: torch.device):
        values = QwenImageTransformer2DModel.load_config(base, subfolder="transformer")
        signature = inspect.signature(QwenImageTransformer2DModel.__init__).parameters
        defaults = {name: one.default for name, one in signature.items() if one.default is not one.empty}
        self.config = diffusers.configuration_utils.FrozenDict({**defaults, **values})
        self.device = device
        self.given: dict[str, Any] = {}

    def __call__(self, *args, **kwargs):
        self.given = {**dict(zip(_ARGUMENTS, args, strict=False)), **kwargs}
        raise _Recorded

    def cache_context(self, name: str, **place):
        """Disable diffusers' caches."""
        return contextlib.nullcontext()

    def __getattr__(self, name: str):
        """Attributes that pipelines read from the model: from its config, or from a meta model."""
        if name.startswith("_") or name in ("config", "given", "whole"):
            raise AttributeError(name)
        if name in self.config:
            return self.config[name]
        if "whole" not in vars(self):
            with torch.device("meta"):
                self.whole = QwenImageTransformer2DModel.from_config(dict(self.config))
        return getattr(self.whole, name)


def _preparing(pipeline, latents: torch.Tensor):
    """The pipeline's prepare_latents with these latents as noise, and a list of its calls."""
    method, used = type(pipeline).prepare_latents, []

    def given(shape, *args, **kwargs):
        used.append(shape)
        if torch.Size(shape).numel() != latents.numel():
            size = f"latents {list(shape)}, and this sample has {list(latents.shape)}"
            raise ValueError(f"QwenImagePipeline draws {size}: use media of the size and length that it draws")
        return _laid_out(latents, tuple(shape))

    names = {**method.__globals__, "randn_tensor": given}
    changed = FunctionType(method.__code__, names, method.__name__, method.__defaults__, method.__closure__)
    changed.__kwdefaults__ = method.__kwdefaults__
    return changed.__get__(pipeline), used


def _laid_out(latents: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    """Latents as a pipeline draws them: as they are, with frames before channels, or with channels last."""
    layouts = [latents, *([latents.transpose(1, 2)] if latents.dim() == 5 else []), latents.movedim(1, -1)]
    long = [length for length in shape if length > 1]
    fitting = (one for one in layouts if [length for length in one.shape if length > 1] == long)
    return next(fitting, latents).reshape(shape)


def _leading(whole: torch.Tensor, latents: torch.Tensor) -> torch.Tensor | None:
    """The part of a denoiser's input that is the latents: all of it, or what comes first along one axis."""
    if whole.numel() == latents.numel():
        return whole
    values = latents.to(whole.dtype).flatten().sort().values
    for axis in range(whole.dim()):
        length, rest = divmod(latents.numel() * whole.shape[axis], whole.numel())
        part = whole.narrow(axis, 0, length)
        if not rest and torch.equal(part.flatten().sort().values, values.to(part.device)):
            return part
    return None


def _leading_replaced(whole: torch.Tensor, latents: torch.Tensor) -> torch.Tensor:
    """A denoiser's input with other latents."""
    whole = whole.to(latents, copy=True)
    whole[tuple(slice(length) for length in latents.shape)] = latents
    return whole


@contextlib.contextmanager
def _seeded(name: str, device: torch.device):
    """Draw by this name what a pipeline draws itself: the same online, offline and after a restart."""
    with torch.random.fork_rng([] if device.type == "cpu" else [device], device_type=device.type):
        torch.manual_seed(zlib.crc32(name.encode()))
        yield


def _is_data(value) -> bool:
    """Whether a value can be stored and is not empty; caches and other objects that pipelines pass cannot."""
    if isinstance(value, dict):
        return bool(value) and all(one is None or _is_data(one) for one in value.values())
    if isinstance(value, (list, tuple)):
        return all(one is None or _is_data(one) for one in value)
    return isinstance(value, (torch.Tensor, bool, int, float, str))


def _only(media):
    """The one image or video of a sample."""
    if isinstance(media, (list, tuple)):
        if len(media) != 1:
            raise ValueError(f"a sample has one target, not {len(media)}")
        return media[0]
    return media
