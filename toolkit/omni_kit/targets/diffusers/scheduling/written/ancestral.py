"""Denoise along all steps of training down to the first step, before which noise was added."""

from dataclasses import dataclass

import torch
from diffusers.configuration_utils import ConfigMixin, register_to_config
from diffusers.schedulers.scheduling_utils import SchedulerMixin
from diffusers.utils import BaseOutput
from diffusers.utils.torch_utils import randn_tensor


@dataclass
class AncestralSchedulerOutput(BaseOutput):
    """
    Output of a scheduler step.

    Args:
        prev_sample (`torch.Tensor`): the latents of the model's next call.
    """

    prev_sample: torch.Tensor


class AncestralScheduler(SchedulerMixin, ConfigMixin):
    """
    Samples as DDPM does along timesteps that end at 1. The noise of timestep 0 counts in what is left of a sample, and
    is not removed.

    Args:
        num_train_timesteps (`int`, defaults to `1000`): number of timesteps of the training.
        beta_start (`float`, defaults to `0.0001`): beta of timestep 0.
        beta_end (`float`, defaults to `0.02`): beta of the last timestep.
        beta_schedule (`str`, defaults to `"linear"`): `"linear"`, or `"scaled_linear"`, whose roots are evenly spaced.
        trained_betas (`list[float]`, *optional*): betas of any other schedule, that of timestep 0 first.
        counts_from_one (`bool`, defaults to `False`): whether timesteps of the training are 1 to `num_train_timesteps`;
            otherwise `num_train_timesteps - 1` is the last one.
        variance_type (`str`, defaults to `"fixed_large"`): variance of the noise that a step adds: `"fixed_large"`, its
            beta, or `"fixed_small"`, that of the posterior.
        clip_sample (`bool`, defaults to `False`): whether predicted samples are clipped to -1 and 1.
    """

    _compatibles: list[str] = []  # noqa: RUF012 (as diffusers writes it)
    order = 1

    @register_to_config
    def __init__(
        self,
        num_train_timesteps: int = 1000,
        beta_start: float = 0.0001,
        beta_end: float = 0.02,
        beta_schedule: str = "linear",
        trained_betas: list[float] | None = None,
        counts_from_one: bool = False,
        variance_type: str = "fixed_large",
        clip_sample: bool = False,
    ) -> None:
        count = num_train_timesteps + counts_from_one
        if trained_betas is not None:
            betas = torch.tensor(trained_betas, dtype=torch.float32)
        elif beta_schedule == "linear":
            betas = torch.linspace(beta_start, beta_end, count)
        elif beta_schedule == "scaled_linear":
            betas = torch.linspace(beta_start**0.5, beta_end**0.5, count) ** 2
        else:
            raise ValueError(f"`beta_schedule` is {beta_schedule!r}; it must be 'linear' or 'scaled_linear'.")
        self.betas = betas
        self.alphas_cumprod = torch.cumprod(1 - betas, dim=0)
        self.init_noise_sigma = 1.0
        self.num_inference_steps: int | None = None
        self.timesteps = torch.arange(count - 1, 0, -1)

    def set_timesteps(self, num_inference_steps: int, device: str | torch.device | None = None) -> None:
        """
        Sets the timesteps of a run, evenly spaced: all if there are as many steps as in training.

        Args:
            num_inference_steps (`int`): number of denoising steps.
            device (`str` or `torch.device`, *optional*): where `timesteps` are wanted.
        """
        last = len(self.alphas_cumprod) - 1
        steps = min(num_inference_steps, last)
        self.timesteps = (torch.arange(steps, 0, -1) * last // steps).to(device)
        self.num_inference_steps = num_inference_steps

    def scale_model_input(self, sample: torch.Tensor, timestep: int | torch.Tensor | None = None) -> torch.Tensor:
        """
        Return latents as they are.

        Args:
            sample (`torch.Tensor`): the latents.
            timestep (`int` or `torch.Tensor`, *optional*): the current timestep.

        Returns:
            `torch.Tensor`: what the model receives.
        """
        return sample

    def step(
        self,
        model_output: torch.Tensor,
        timestep: int | torch.Tensor,
        sample: torch.Tensor,
        generator: torch.Generator | None = None,
        return_dict: bool = True,
    ) -> AncestralSchedulerOutput | tuple[torch.Tensor]:
        """
        Return the latents of the model's next call.

        Args:
            model_output (`torch.Tensor`): the noise that the model predicts.
            timestep (`int` or `torch.Tensor`): the current timestep.
            sample (`torch.Tensor`): the current latents.
            generator (`torch.Generator`, *optional*): what draws noise.
            return_dict (`bool`, defaults to `True`): whether to return an output or a tuple.

        Returns:
            [`AncestralSchedulerOutput`] or `tuple`: the latents.
        """
        step = int(timestep)
        below = [int(one) for one in self.timesteps if one < step]
        place = below[0] if below else 0
        now, before = self.alphas_cumprod[step], self.alphas_cumprod[place]
        beta = self.betas[step] if place == step - 1 else 1 - now / before
        if self.config.clip_sample:
            predicted = ((sample - (1 - now) ** 0.5 * model_output) / now**0.5).clamp(-1, 1)
            kept, moved = (1 - before) / (1 - now) * (1 - beta) ** 0.5, beta / (1 - now) * before**0.5
            previous = moved * predicted + kept * sample
        else:
            previous = (sample - beta / (1 - now) ** 0.5 * model_output) / (1 - beta) ** 0.5
        if below:
            noise = randn_tensor(
                model_output.shape, generator=generator, device=model_output.device, dtype=model_output.dtype
            )
            variance = beta if self.config.variance_type == "fixed_large" else beta * (1 - before) / (1 - now)
            previous = previous + variance**0.5 * noise
        previous = previous.to(sample.dtype)
        return AncestralSchedulerOutput(prev_sample=previous) if return_dict else (previous,)

    def __len__(self) -> int:
        return int(self.config.num_train_timesteps)
