"""An object that authors sample with, as a sampler calls it and as diffusers goes the same way."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Interval:
    """An interval of times that a model receives, in which its answers are guided.

    Attributes:
        low, high: its ends.
        above, below: how the time is compared with them: `<` or `<=`.
    """

    low: float
    high: float
    above: str
    below: str


@dataclass(frozen=True)
class Process:
    """Construction and use of one of the authors' sampling objects.

    Attributes:
        where: file:line of the place that uses it.
        imports: the lines that import what makes it.
        called: the latents, as an expression in `asked`, `begun`, `told`, `steps` and `noise`; where it guides itself,
            in `held`, `noise`, `steps`, `text`, `against` and `scale`.
        scheduler: the class of diffusers that goes the same way.
        reason: why that one, in a line.
        config: what it is made with.
        rises: the model's time is 0 for noise and 1 for data, and it predicts the velocity from noise to data.
        held: the lines that make what it asks, where that is no model alone; it guides then.
        todo: what its users pass that was not read.
        denoiser: the expression for its model, if a run has shown which scheduler goes the same way; else empty.
        draws: it draws its first noise itself.
        whole: the model is passed its steps as they are, and no parts of one; None if the scheduler decides.
        real: as numbers with a fraction.
        scales: the scheduler scales what the model receives.
        shift: of the noise levels.
        small: what the scheduler of a toy is made with, where it is something else: the steps of training are as many
            as those that it samples with, if the sampler goes all of them.
        empty: arguments of the model for which it passes None, whatever it is passed itself.
        guides: a run has shown that it joins two answers by a scale.
        scale: that scale by default, counted as is usual; None if nothing says it.
        within: the interval in which it does; None for every step.
        ranks: the numbers of axes of latents with which it runs; empty if that was not tried.
    """

    where: str
    imports: tuple[str, ...]
    called: str
    scheduler: str
    reason: str
    config: Mapping[str, object] = field(default_factory=dict)
    rises: bool = False
    held: tuple[str, ...] = ()
    todo: tuple[str, ...] = ()
    denoiser: str = ""
    draws: bool = False
    whole: bool | None = None
    real: bool = False
    scales: bool = False
    shift: float = 1.0
    small: Mapping[str, object] = field(default_factory=dict)
    empty: tuple[str, ...] = ()
    guides: bool = False
    scale: float | None = None
    within: Interval | None = None
    ranks: tuple[int, ...] = ()

    @property
    def every_step(self) -> bool:
        """Return whether it goes all steps of training."""
        return bool(self.small)

    @property
    def draws_noise(self) -> bool:
        """Return whether every step adds noise."""
        return self.scheduler == "DDPMScheduler"

    @property
    def learns_variance(self) -> bool:
        """Return whether half of what the model answers is a variance."""
        return str(self.config.get("variance_type", "")).startswith("learned")
