"""Solve a diffusion ODE by DPM-Solver with steps that are not rounded to those of training."""

from dataclasses import dataclass

import numpy as np
import torch
from diffusers.configuration_utils import ConfigMixin, register_to_config
from diffusers.schedulers.scheduling_utils import SchedulerMixin
from diffusers.utils import BaseOutput

_CHOICES = {
    "beta_schedule": ("linear", "scaled_linear"),
    "prediction_type": ("epsilon", "sample", "v_prediction"),
    "algorithm_type": ("dpmsolver++", "dpmsolver"),
    "solver_order": (1, 2, 3),
    "method": ("multistep", "singlestep"),
    "spacing": ("time", "logsnr"),
}


@dataclass
class ContinuousDPMSolverSchedulerOutput(BaseOutput):
    """
    Output of a scheduler step.

    Args:
        prev_sample (`torch.Tensor`): the latents of the model's next call.
    """

    prev_sample: torch.Tensor


class ContinuousDPMSolverScheduler(SchedulerMixin, ConfigMixin):
    """
    Solves a diffusion ODE by DPM-Solver (Lu et al., 2022) at times between the steps of training.

    The logarithm of the signal is interpolated between the steps of training, as the authors of DPM-Solver do. The
    model is called once per inference step, and each method goes along the same times.

    Args:
        num_train_timesteps (`int`, defaults to `1000`): number of steps of training.
        beta_start (`float`, defaults to `0.0001`): first beta.
        beta_end (`float`, defaults to `0.02`): last beta.
        beta_schedule (`str`, defaults to `"linear"`): `"linear"` or `"scaled_linear"`.
        prediction_type (`str`, defaults to `"epsilon"`): `"epsilon"`, `"sample"` or `"v_prediction"`.
        algorithm_type (`str`, defaults to `"dpmsolver++"`): `"dpmsolver++"` integrates denoised samples, `"dpmsolver"`
            integrates noise.
        solver_order (`int`, defaults to `2`): 1, 2, or 3.
        method (`str`, defaults to `"multistep"`): `"multistep"` or `"singlestep"`.
        spacing (`str`, defaults to `"time"`): what falls evenly: `"time"` or `"logsnr"`.
        lower_order_below (`int`, defaults to `15`): multistep runs of fewer steps end with lower orders.
        steps_offset (`int`, defaults to `0`): what is added to the timesteps that the model receives.
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
        prediction_type: str = "epsilon",
        algorithm_type: str = "dpmsolver++",
        solver_order: int = 2,
        method: str = "multistep",
        spacing: str = "time",
        lower_order_below: int = 15,
        steps_offset: int = 0,
    ) -> None:
        for name, choices in _CHOICES.items():
            if self.config[name] not in choices:
                raise ValueError(f"`{name}` is {self.config[name]!r}; it must be one of {choices}.")
        power = 2 if beta_schedule == "scaled_linear" else 1
        betas = np.linspace(beta_start ** (1 / power), beta_end ** (1 / power), num_train_timesteps) ** power
        self._trained = np.arange(1, num_train_timesteps + 1) / num_train_timesteps
        self._log_alphas = 0.5 * np.cumsum(np.log(1 - betas))
        self.num_inference_steps: int | None = None
        self.init_noise_sigma = 1.0
        self.timesteps = torch.empty(0)
        self._levels: list[tuple[float, float, float]] = []
        self._plan: list[tuple[int, int]] = []
        self._step_index = 0
        self._start = torch.empty(0)
        self._outputs: list[torch.Tensor] = []

    @property
    def step_index(self) -> int:
        """The index in `timesteps` of the next step."""
        return self._step_index

    def set_timesteps(self, num_inference_steps: int, device: str | torch.device | None = None) -> None:
        """
        Sets the steps of a run.

        Args:
            num_inference_steps (`int`): number of denoising steps, each with one call of the model.
            device (`str` or `torch.device`, *optional*): where `timesteps` are wanted.
        """
        config, count = self.config, num_inference_steps
        if config.spacing == "time":
            times = np.linspace(1, 1 / config.num_train_timesteps, count + 1)
        else:
            ratios = self._log_alphas - 0.5 * np.log(1 - np.exp(2 * self._log_alphas))
            even = np.linspace(ratios[-1], ratios[0], count + 1)
            times = np.interp(-0.5 * np.logaddexp(0, -2 * even), self._log_alphas[::-1], self._trained[::-1])
        logs = np.interp(times, self._trained, self._log_alphas)
        sigmas = np.sqrt(1 - np.exp(2 * logs))
        self._levels = [*zip(np.exp(logs).tolist(), sigmas.tolist(), (logs - np.log(sigmas)).tolist(), strict=True)]
        self._plan = self._planned(count)
        told = times[:-1] * config.num_train_timesteps - 1 + config.steps_offset
        self.timesteps = torch.from_numpy(told.astype(np.float32)).to(device)
        self.num_inference_steps = count
        self._step_index, self._outputs = 0, []

    def _planned(self, count: int) -> list[tuple[int, int]]:
        """Return where each step starts from, and its order."""
        order = self.config.solver_order
        if self.config.method == "singlestep":
            orders = [order] * (count // order) + [count % order] * (count % order > 0)
            if order == 3 and count % 3 == 0:
                orders = [*orders[:-1], 2, 1]
            starts = np.cumsum([0, *orders]).tolist()
            return [(start, one) for start, one in zip(starts, orders, strict=False) for _ in range(one)]
        ends = count < self.config.lower_order_below
        return [(at, min(order, at + 1, count - at if ends else order)) for at in range(count)]

    def scale_model_input(self, sample: torch.Tensor, timestep: float | torch.Tensor | None = None) -> torch.Tensor:
        """
        Return the latents as they are.

        Args:
            sample (`torch.Tensor`): the latents.
            timestep (`float` or `torch.Tensor`, *optional*): the current timestep.

        Returns:
            `torch.Tensor`: what the model receives.
        """
        return sample

    def step(
        self,
        model_output: torch.Tensor,
        timestep: float | torch.Tensor,
        sample: torch.Tensor,
        return_dict: bool = True,
    ) -> ContinuousDPMSolverSchedulerOutput | tuple[torch.Tensor]:
        """
        Return the latents of the model's next call.

        Args:
            model_output (`torch.Tensor`): the output of the model.
            timestep (`float` or `torch.Tensor`): the current timestep.
            sample (`torch.Tensor`): the current latents.
            return_dict (`bool`, defaults to `True`): whether to return an output or a tuple.

        Returns:
            [`ContinuousDPMSolverSchedulerOutput`] or `tuple`: the latents.
        """
        at = self._step_index
        start, order = self._plan[at]
        single = self.config.method == "singlestep"
        if start == at:
            self._start = sample
            self._outputs = [] if single else self._outputs[-2:]
        self._outputs.append(self._integrated(model_output, sample, at))
        moved = self._moved_single(at, start, order) if single else self._moved_multi(at, order)
        self._step_index += 1
        return ContinuousDPMSolverSchedulerOutput(prev_sample=moved) if return_dict else (moved,)

    def _integrated(self, model_output: torch.Tensor, sample: torch.Tensor, at: int) -> torch.Tensor:
        """Return the denoised sample or the noise."""
        (alpha, sigma, _), kind = self._levels[at], self.config.prediction_type
        if self.config.algorithm_type == "dpmsolver++":
            if kind == "epsilon":
                return (sample - sigma * model_output) / alpha
            return model_output if kind == "sample" else alpha * sample - sigma * model_output
        if kind == "sample":
            return (sample - alpha * model_output) / sigma
        return model_output if kind == "epsilon" else alpha * model_output + sigma * sample

    def _moved_single(self, at: int, start: int, order: int) -> torch.Tensor:
        first, change = self._outputs[0], None
        if at > start:
            share = (self._levels[at][2] - self._levels[start][2]) / (self._levels[at + 1][2] - self._levels[start][2])
            change = (self._outputs[-1] - first) / share
        return self._moved(start, at + 1, first, change, order=order)

    def _moved_multi(self, at: int, order: int) -> torch.Tensor:
        ratios = [level[2] for level in self._levels[max(at - 2, 0) : at + 2]]
        step, last = ratios[-1] - ratios[-2], self._outputs[-1]
        if order == 1:
            return self._moved(at, at + 1, last, None)
        r0 = (ratios[-2] - ratios[-3]) / step
        change = (last - self._outputs[-2]) / r0
        if order == 2:
            return self._moved(at, at + 1, last, change)
        r1 = (ratios[-3] - ratios[-4]) / step
        bend = (change - (self._outputs[-2] - self._outputs[-3]) / r1) / (r0 + r1)
        return self._moved(at, at + 1, last, change + r0 * bend, bend, order=3)

    def _moved(
        self,
        start: int,
        end: int,
        output: torch.Tensor,
        change: torch.Tensor | None,
        bend: torch.Tensor | None = None,
        order: int = 2,
    ) -> torch.Tensor:
        """Return the latents at `end`, from outputs at `start` with what they change by."""
        (alpha, sigma, ratio), (alpha_next, sigma_next, ratio_next) = self._levels[start], self._levels[end]
        step, kept, scale = ratio_next - ratio, alpha_next / alpha, sigma_next
        if self.config.algorithm_type == "dpmsolver++":
            step, kept, scale = -step, sigma_next / sigma, alpha_next
        first = float(np.expm1(step))
        second = first / step - 1
        moved = kept * self._start - scale * first * output
        if change is not None:
            moved = moved - scale * (0.5 * first if order == 2 else second) * change
        if bend is not None:
            moved = moved - scale * (second / step - 0.5) * bend
        return moved

    def __len__(self) -> int:
        return int(self.config.num_train_timesteps)
