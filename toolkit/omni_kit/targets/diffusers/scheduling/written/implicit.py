"""Denoise as DDIM does along timesteps that are evenly spaced from before the first step, rounded down."""

from dataclasses import dataclass

import torch
from diffusers.configuration_utils import register_to_config
from diffusers.schedulers.scheduling_ddim import DDIMScheduler
from diffusers.utils import BaseOutput
from diffusers.utils.torch_utils import randn_tensor


@dataclass
class ImplicitSchedulerOutput(BaseOutput):
    """
    Output of a scheduler step.

    Args:
        prev_sample (`torch.Tensor`): the latents of the model's next call.
    """

    prev_sample: torch.Tensor


class ImplicitScheduler(DDIMScheduler):
    """
    DDIM whose timesteps divide the steps of training, and one before them, evenly: none is left after the last one.

    Args:
        num_train_timesteps (`int`, defaults to `1000`): number of timesteps of the training.
        beta_start (`float`, defaults to `0.0001`): first beta.
        beta_end (`float`, defaults to `0.02`): last beta.
        beta_schedule (`str`, defaults to `"linear"`): one of [`DDIMScheduler`]'s.
        trained_betas (`list[float]`, *optional*): betas of any other schedule.
        prediction_type (`str`, defaults to `"epsilon"`): `"epsilon"`, `"sample"` or `"v_prediction"`.
        clip_sample (`bool`, defaults to `False`): whether predicted samples are clipped to -1 and 1.
        use_clipped_model_output (`bool`, defaults to `False`): whether noise is derived from clipped samples.
        eta (`float`, defaults to `0.0`): share of the noise that a step may add.
    """

    @register_to_config
    def __init__(
        self,
        num_train_timesteps: int = 1000,
        beta_start: float = 0.0001,
        beta_end: float = 0.02,
        beta_schedule: str = "linear",
        trained_betas: list[float] | None = None,
        prediction_type: str = "epsilon",
        clip_sample: bool = False,
        use_clipped_model_output: bool = False,
        eta: float = 0.0,
    ) -> None:
        super().__init__(
            num_train_timesteps=num_train_timesteps,
            beta_start=beta_start,
            beta_end=beta_end,
            beta_schedule=beta_schedule,
            trained_betas=trained_betas,
            prediction_type=prediction_type,
            clip_sample=clip_sample,
        )

    def set_timesteps(self, num_inference_steps: int, device: str | torch.device | None = None) -> None:
        """
        Sets the timesteps of a run.

        Args:
            num_inference_steps (`int`): number of denoising steps.
            device (`str` or `torch.device`, *optional*): where `timesteps` are wanted.
        """
        count = self.config.num_train_timesteps
        self.num_inference_steps = num_inference_steps
        self.timesteps = (torch.arange(num_inference_steps, 0, -1) * count // num_inference_steps - 1).to(device)

    def step(
        self,
        model_output: torch.Tensor,
        timestep: int | torch.Tensor,
        sample: torch.Tensor,
        generator: torch.Generator | None = None,
        return_dict: bool = True,
    ) -> ImplicitSchedulerOutput | tuple[torch.Tensor]:
        """
        Return the latents of the model's next call.

        Args:
            model_output (`torch.Tensor`): the model's prediction.
            timestep (`int` or `torch.Tensor`): the current timestep.
            sample (`torch.Tensor`): the current latents.
            generator (`torch.Generator`, *optional*): what draws noise.
            return_dict (`bool`, defaults to `True`): whether to return an output or a tuple.

        Returns:
            [`ImplicitSchedulerOutput`] or `tuple`: the latents.
        """
        below = [int(one) for one in self.timesteps if one < int(timestep)]
        now = self.alphas_cumprod[int(timestep)]
        after = self.alphas_cumprod[below[0]] if below else torch.ones_like(now)
        if self.config.prediction_type == "sample":
            predicted, noise = model_output, (sample - now**0.5 * model_output) / (1 - now) ** 0.5
        elif self.config.prediction_type == "v_prediction":
            predicted = now**0.5 * sample - (1 - now) ** 0.5 * model_output
            noise = now**0.5 * model_output + (1 - now) ** 0.5 * sample
        else:
            predicted, noise = (sample - (1 - now) ** 0.5 * model_output) / now**0.5, model_output
        if self.config.clip_sample:
            predicted = predicted.clamp(-1, 1)
            if self.config.use_clipped_model_output:
                noise = (sample - now**0.5 * predicted) / (1 - now) ** 0.5
        deviation = self.config.eta * ((1 - now / after) * (1 - after) / (1 - now)) ** 0.5
        previous = after**0.5 * predicted + (1 - after - deviation**2).clamp(min=0) ** 0.5 * noise
        if self.config.eta and below:
            drawn = randn_tensor(
                model_output.shape, generator=generator, device=model_output.device, dtype=model_output.dtype
            )
            previous = previous + deviation * drawn
        previous = previous.to(sample.dtype)
        return ImplicitSchedulerOutput(prev_sample=previous) if return_dict else (previous,)
