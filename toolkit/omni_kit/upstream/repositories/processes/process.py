"""An object that authors sample with, as a sampler calls it and as diffusers goes the same way."""

from collections.abc import Mapping
from dataclasses import dataclass, field

JOINED = "conditioned"
"""Variable of a call: what is joined with latents, by name."""
MIXED = "mixed"
"""Variable of a call: what is mixed with latents, by name; None for nothing."""


@dataclass(frozen=True)
class Joined:
    """Conditions that a sampler joins with latents for its model.

    Attributes:
        axis: along which.
        parts: their names, in order; empty for the latents.
        zeroed: authors guide against zeros in their place.
    """

    axis: int
    parts: tuple[str, ...]
    zeroed: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the conditions."""
        return tuple(filter(None, self.parts))

    @property
    def others(self) -> str:
        """Text for the width of latents after that of all, along axis 1: ` - image.shape[1]`."""
        return "".join(f" - {name}.shape[1]" for name in self.names) if self.axis == 1 else ""

    def expression(self, latents: str, before: str = "") -> str:
        """Return the expression for what the model receives, with that for latents.

        Args:
            before: prefix of the names of conditions.
        """
        parts = ", ".join(f"{before}{one}" if one else latents for one in self.parts)
        return f"torch.cat([{parts}], dim={self.axis})"

    def width(self, whole: int, latents: int) -> int:
        """Return how wide each condition is along the axis, with these widths of all and of latents; 0 if they cannot
        be alike.
        """
        rest = whole - latents
        return rest // len(self.names) if rest > 0 and not rest % len(self.names) else 0


@dataclass(frozen=True)
class Mixed:
    """Known values that a sampler puts back into its latents after each step.

    Attributes:
        known, mask: the arguments for these values and for where they are; without a mask nothing is put back.
        generates: the mask is 1 where latents are generated, and 0 where values are known; if not, the other way round.
    """

    known: str
    mask: str
    generates: bool = True

    def expression(self, latents: str) -> str:
        """Return the expression for latents with what is known."""
        first, last = (self.known, latents) if self.generates else (latents, self.known)
        return f"{first} * (1 - {self.mask}) + {last} * {self.mask}"


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
        denoised: where the model predicts data, the least number by which the velocity to it is divided; else None.
        ranks: the numbers of axes of latents with which it runs; empty if that was not tried.
        joined: the conditions that the model receives joined with latents, by the names of the sampler's arguments.
        level: the model receives the noise level as its time, as this power of the scheduler's cumulative product; 0
            for steps.
        skips: how many of the scheduler's first steps it leaves out.
        mixed: the known values that it mixes with latents.
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
    denoised: float | None = None
    ranks: tuple[int, ...] = ()
    joined: Joined | None = None
    level: float = 0.0
    skips: int = 0
    mixed: Mixed | None = None

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
