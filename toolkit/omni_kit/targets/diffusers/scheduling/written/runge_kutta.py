"""Integrate from noise to latents by a Runge-Kutta method with fixed steps."""

from dataclasses import dataclass
from itertools import pairwise

import torch
from diffusers.configuration_utils import ConfigMixin, register_to_config
from diffusers.schedulers.scheduling_utils import SchedulerMixin
from diffusers.utils import BaseOutput

# Method -> what a stage adds of the slopes before it, for each stage; and the weights of all slopes in a step.
_METHODS = {
    "euler": (((),), (1.0,)),
    "midpoint": (((), (0.5,)), (0.0, 1.0)),
    "heun": (((), (1.0,)), (0.5, 0.5)),
    "rk4": (((), (0.5,), (0.0, 0.5), (0.0, 0.0, 1.0)), (1 / 6, 1 / 3, 1 / 3, 1 / 6)),
    "rk4_38": (((), (1 / 3,), (-1 / 3, 1.0), (1.0, -1.0, 1.0)), (0.125, 0.375, 0.375, 0.125)),
}


@dataclass
class RungeKuttaSchedulerOutput(BaseOutput):
    """
    Output of a scheduler step.

    Args:
        prev_sample (`torch.Tensor`): the latents of the model's next call.
    """

    prev_sample: torch.Tensor


class RungeKuttaScheduler(SchedulerMixin, ConfigMixin):
    """
    Integrates from noise to latents with fixed steps; a step calls the model once per stage of the method.

    Without `sigma_data` the model predicts a velocity, and noise levels fall evenly from `first_level` to `last_level`
    before they are shifted. With it, levels are those of Karras et al. (2022), whose preconditioning makes a denoised
    sample of the model's output.

    Args:
        num_train_timesteps (`int`, defaults to `1000`): the timestep of level 1 of a velocity.
        method (`str`, defaults to `"heun"`): `"euler"`, `"midpoint"`, `"heun"`, `"rk4"`, or `"rk4_38"`, the 3/8 rule.
        first_level (`float`, defaults to `1.0`): noise level of a velocity before the first step.
        last_level (`float`, defaults to `0.0`): noise level of a velocity after the last step.
        shift (`float`, defaults to `1.0`): factor by which levels of a velocity are bent towards noise.
        euler_last (`bool`, defaults to `False`): whether the last step is Euler's, as it is with `sigma_data`: the
            model is not called at the last level.
        sigma_data (`float`, *optional*): standard deviation of the data.
        sigma_min (`float`, defaults to `0.002`): last level before 0.
        sigma_max (`float`, defaults to `80.0`): first level.
        rho (`float`, defaults to `7.0`): exponent of the levels.
        time_factor (`float`, defaults to `0.25`): the timestep is this factor times the logarithm of the level.
        clip_sample (`bool`, defaults to `False`): whether denoised samples are clipped to -1 and 1.
    """

    _compatibles: list[str] = []  # noqa: RUF012 (as diffusers writes it)
    order = 1

    @register_to_config
    def __init__(
        self,
        num_train_timesteps: int = 1000,
        method: str = "heun",
        first_level: float = 1.0,
        last_level: float = 0.0,
        shift: float = 1.0,
        euler_last: bool = False,
        sigma_data: float | None = None,
        sigma_min: float = 0.002,
        sigma_max: float = 80.0,
        rho: float = 7.0,
        time_factor: float = 0.25,
        clip_sample: bool = False,
    ) -> None:
        if method not in _METHODS:
            raise ValueError(f"`method` is {method!r}; it must be one of {', '.join(_METHODS)}.")
        self.order = len(_METHODS[method][1])
        self.num_inference_steps: int | None = None
        self.init_noise_sigma = sigma_max if sigma_data is not None else 1.0
        self.timesteps = torch.empty(0)
        self._stages: list[tuple[str, int, float, float]] = []
        self._step_index = 0
        self._start = torch.empty(0)
        self._slopes: list[torch.Tensor] = []

    @property
    def step_index(self) -> int:
        """The index in `timesteps` of the next step."""
        return self._step_index

    def set_timesteps(self, num_inference_steps: int, device: str | torch.device | None = None) -> None:
        """
        Sets the steps of a run: `timesteps` contains the model's timestep for each of its calls.

        Args:
            num_inference_steps (`int`): number of denoising steps.
            device (`str` or `torch.device`, *optional*): where `timesteps` are wanted.
        """
        config, count = self.config, num_inference_steps
        if config.sigma_data is None:
            levels = torch.linspace(config.first_level, config.last_level, count + 1, dtype=torch.float64)
            levels = config.shift * levels / (1 + (config.shift - 1) * levels)
        else:
            first, last = config.sigma_max ** (1 / config.rho), config.sigma_min ** (1 / config.rho)
            along = torch.arange(count, dtype=torch.float64) / max(count - 1, 1)
            levels = torch.cat([(first + along * (last - first)) ** config.rho, torch.zeros(1).double()])
        self._stages = []
        for step, (now, after) in enumerate(pairwise(levels.tolist()), 1):
            # A denoised sample says nothing of the level 0.
            ends = step == count and (config.euler_last or config.sigma_data is not None)
            method = "euler" if ends else config.method
            for stage, before in enumerate(_METHODS[method][0]):
                self._stages.append((method, stage, now + sum(before) * (after - now), after - now))
        sigmas = torch.tensor([level for _, _, level, _ in self._stages], dtype=torch.float64)
        times = sigmas * config.num_train_timesteps if config.sigma_data is None else config.time_factor * sigmas.log()
        self.timesteps = times.float().to(device)
        self.num_inference_steps = count
        self._step_index, self._slopes = 0, []

    def scale_model_input(self, sample: torch.Tensor, timestep: float | torch.Tensor | None = None) -> torch.Tensor:
        """
        Scale latents to unit variance for the model; those of a velocity stay as they are.

        Args:
            sample (`torch.Tensor`): the latents.
            timestep (`float` or `torch.Tensor`, *optional*): the current timestep.

        Returns:
            `torch.Tensor`: what the model receives.
        """
        if self.config.sigma_data is None:
            return sample
        level: float = self._stages[self._step_index][2]
        return sample / float(level**2 + self.config.sigma_data**2) ** 0.5

    def step(
        self,
        model_output: torch.Tensor,
        timestep: float | torch.Tensor,
        sample: torch.Tensor,
        return_dict: bool = True,
    ) -> RungeKuttaSchedulerOutput | tuple[torch.Tensor]:
        """
        Return the latents of the model's next call.

        Args:
            model_output (`torch.Tensor`): the output of the model.
            timestep (`float` or `torch.Tensor`): the current timestep.
            sample (`torch.Tensor`): the current latents.
            return_dict (`bool`, defaults to `True`): whether to return an output or a tuple.

        Returns:
            [`RungeKuttaSchedulerOutput`] or `tuple`: the latents.
        """
        method, stage, level, size = self._stages[self._step_index]
        before, weights = _METHODS[method]
        if stage == 0:
            self._start, self._slopes = sample, []
        self._slopes.append(self._slope(model_output, sample, level))
        told = weights if stage + 1 == len(weights) else before[stage + 1]
        moved = self._start
        for weight, slope in zip(told, self._slopes, strict=True):
            moved = moved + size * weight * slope
        self._step_index += 1
        return RungeKuttaSchedulerOutput(prev_sample=moved) if return_dict else (moved,)

    def _slope(self, model_output: torch.Tensor, sample: torch.Tensor, level: float) -> torch.Tensor:
        data = self.config.sigma_data
        if data is None:
            return model_output
        variance = level**2 + data**2
        denoised = data**2 / variance * sample + level * data / variance**0.5 * model_output
        denoised = denoised.clamp(-1, 1) if self.config.clip_sample else denoised
        slope: torch.Tensor = (sample - denoised) / level
        return slope

    def __len__(self) -> int:
        return int(self.config.num_train_timesteps)
