"""What FluxPipeline hands to its denoiser, learned by running its own `__call__` up to the scheduler's first step."""

import contextlib
import copy
from dataclasses import dataclass
from typing import Any

import torch
from diffusers import AutoencoderKL, FluxPipeline, FluxTransformer2DModel

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
)
_LATENTS, _STEP = "hidden_states", "timestep"


@dataclass
class Recording:
    """What a denoising loop begins with.

    Attributes:
        latents: noise, as the scheduler steps on it.
        positive, negative: what the denoiser is asked with besides latents and step; None where nothing is guided.
        scheduler: set to its steps.
        local: the variables of `__call__` at that place.
    """

    latents: torch.Tensor
    positive: dict[str, Any]
    negative: dict[str, Any] | None
    scheduler: Any
    local: dict[str, Any]


class Shell(FluxPipeline):
    """FluxPipeline without the weights of its denoiser and its autoencoder, on a device of one's own choice."""

    def __init__(self, folder: str, parts: dict[str, Any], scheduler, device: torch.device, dtype: torch.dtype):
        self._own_device = device
        config = FluxPipeline.load_config(folder)
        with torch.device("meta"):
            built = {
                "transformer": FluxTransformer2DModel.from_config(
                    FluxTransformer2DModel.load_config(folder, subfolder="transformer")
                ),
                "vae": AutoencoderKL.from_config(AutoencoderKL.load_config(folder, subfolder="vae")),
            }
        options = {name: config[name] for name in () if name in config}
        absent = {name: None for name in ()}
        super().__init__(**{**absent, **parts, **built, **options, "scheduler": scheduler})
        self.transformer = Recorder(built["transformer"], dtype)
        self.set_progress_bar_config(disable=True)

    @property
    def _execution_device(self):
        return self._own_device

    @property
    def device(self):
        """Where noise is made."""
        return self._own_device


class Recorder:
    """Stands in the denoiser's place: has its config, and keeps what it is called with."""

    def __init__(self, model, dtype: torch.dtype):
        self.model, self.dtype = model, dtype
        self.calls: list[dict[str, Any]] = []

    def __call__(self, *args, **kwargs):
        given = {**dict(zip(_ARGUMENTS, args, strict=False)), **kwargs}
        self.calls.append(given)
        return (given[_LATENTS],)

    def cache_context(self, name: str, **place):
        """diffusers' caches are of no use here."""
        return contextlib.nullcontext()

    def __getattr__(self, name: str):
        """What pipelines ask of the model itself."""
        if name in ("model", "dtype", "calls"):
            raise AttributeError(name)
        return getattr(self.model, name)


class _Recorded(Exception):  # noqa: N818
    """Ends a pipeline's call where the scheduler would step for the first time."""


def record(shell: Shell, asked: dict[str, Any]) -> Recording:
    """Asks the pipeline, and stops it at its first step."""
    pipeline = copy.copy(shell)
    pipeline.transformer = recorder = Recorder(shell.transformer.model, shell.transformer.dtype)
    pipeline.scheduler = copy.deepcopy(shell.scheduler)
    stepped: list[torch.Tensor] = []

    def step(model_output, timestep, sample, *args, **kwargs):
        stepped.append(sample)
        raise _Recorded

    pipeline.scheduler.step = step
    local: dict[str, Any] = {}
    try:
        pipeline(**asked)
    except _Recorded as end:
        local = _variables(end)
    del pipeline.scheduler.step  # the scheduler's own is there again
    if not stepped or not recorder.calls:
        raise ValueError("FluxPipeline came to its end without a step")
    _check(recorder.calls[0], stepped[0], pipeline.scheduler)
    positive, negative = _branches(recorder.calls, stepped[0])
    return Recording(stepped[0], positive, negative, pipeline.scheduler, {"self": pipeline, **local})


def _variables(end: BaseException) -> dict[str, Any]:
    """Those of the pipeline's `__call__`, which an exception has come through."""
    trace = end.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_name == "__call__" and "num_inference_steps" in trace.tb_frame.f_locals:
            return dict(trace.tb_frame.f_locals)
        trace = trace.tb_next
    return {}


def _branches(calls: list[dict[str, Any]], latents: torch.Tensor) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """The conditions for the prompt and against it: diffusers/pipelines/flux/pipeline_flux.py:977."""
    if len(calls) == 1:
        return _conditions(calls[0]), None
    negative, positive = map(_conditions, reversed(calls[:2]))
    return positive, negative


def _conditions(given: dict[str, Any]) -> dict[str, Any]:
    """What is neither latents nor step nor nothing."""
    apart = (_LATENTS, _STEP, "return_dict")
    kept = {name: value for name, value in given.items() if name in _ARGUMENTS and name not in apart}
    return {name: value for name, value in kept.items() if value is not None and value != {}}


def _length(value) -> int:
    return len(value) if isinstance(value, (list, torch.Tensor)) else 0


def _half(value, start: int, count: int):
    """One half of what is there for twice the batch; anything else as it is."""
    if isinstance(value, (list, tuple)) and len(value) == 2 * count:
        return value[start : start + count]
    if isinstance(value, torch.Tensor) and value.dim() and len(value) == 2 * count:
        return value[start : start + count]
    return value


def _check(given: dict[str, Any], latents: torch.Tensor, scheduler) -> None:
    """Raises where the pipeline does otherwise than this scaffold was derived for."""
    handed = given[_LATENTS]
    handed = torch.stack(list(handed)) if isinstance(handed, (list, tuple)) else handed
    if handed.numel() % latents.numel() or not torch.equal(
        handed.flatten()[: latents.numel()].float(), latents.to(handed.dtype).flatten().float()
    ):
        raise ValueError("FluxPipeline hands its denoiser other latents than it steps on: finish FluxT2iDiT.forward")
    from flux_t2i.dit import _step

    step = given[_STEP].flatten()[0].float()
    expected = _step(scheduler.timesteps[:1].to(step.device)).flatten()[0].float()
    if not torch.allclose(step, expected, rtol=1e-2, atol=1e-2):
        raise ValueError(f"FluxPipeline calls a step {float(step)}, not {float(expected)}: finish _step of FluxT2iDiT")
