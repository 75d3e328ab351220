"""Choice of the scheduler of a new pipeline: an existing one that computes the same, or a new one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from omni_kit.pysource.eval import Unsupported
from omni_kit.targets.diffusers.porting.forward import LATENTS, TIME
from omni_kit.targets.diffusers.scheduling.library_scheduler import (
    USUAL,
    Installed,
    installed_for,
    is_plain,
    shift_along,
)
from omni_kit.targets.diffusers.scheduling.noising import noising_of
from omni_kit.targets.diffusers.scheduling.scheduler_class import Made
from omni_kit.targets.diffusers.scheduling.settings import defaults_of
from omni_kit.upstream.repositories.names import Defined
from omni_kit.upstream.repositories.sampler_step.split_step import Divided
from omni_kit.upstream.repositories.sampling import Sampling


@dataclass(frozen=True)
class Stepping:
    """Decision on the scheduler.

    Attributes:
        installed: the scheduler that does the same.
        made: the one that is written; None if none is.
        reason: why, in one line; empty if the usual one was not looked beyond.
        unmoved: why none is written though one is missing; empty otherwise.
        shift: of the levels that are gone along, where the loop alone shows it.
        copied: the authors' own scheduler, where it is one of diffusers' kind; its class is copied.
        told: arguments of its `set_timesteps` other than the number of steps.
        todo: what the authors' code leaves open.
    """

    installed: Installed = USUAL
    made: Made | None = None
    reason: str = ""
    unmoved: str = ""
    shift: float | None = None
    copied: Defined | None = None
    told: Mapping[str, Any] = field(default_factory=dict)
    todo: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The class that is there; empty if one is written."""
        return "" if self.made is not None else self.installed.name


NOTHING = Stepping()
"""Decision without a loop."""


def stepping_of(sampling: Sampling, order: Sequence[str], names: Mapping[str, str], shift: float | None) -> Stepping:
    """Choose the scheduler for a loop.

    Args:
        order: the arguments of the model.
        names: what they are called here.
        shift: of the loop's levels, where that is all that they are.
    """
    latents, time = (next((old for old, new in names.items() if new == one), "") for one in (LATENTS, TIME))
    settings = defaults_of(sampling.made)
    try:
        loop = Divided(sampling, order, latents, time)
        plain = is_plain(loop, settings)
        told = sampling.schedule is not None and (shift is not None or sampling.schedule.made is not None)
        if (plain and told) or (plain is None and sampling.forward and _is_simple(loop)):
            return NOTHING
        if plain and (own := shift_along(loop, settings)) is not None:
            return Stepping(reason=f"{sampling.function} uses the noise levels of shift={own:g}", shift=own)
        if not plain and (found := installed_for(loop, settings, shift)) is not None:
            config = ", ".join(f"{name}={value}" for name, value in found.config.items())
            return Stepping(
                found, reason=f"it takes the steps of {sampling.function}, computed side by side; {config}".rstrip("; ")
            )
        made = Made(loop, noising_of(loop, settings))
        made.tried()
    except Unsupported as error:
        return Stepping(unmoved=str(error))
    return Stepping(made=made, reason=_why(loop, settings, plain))


def _is_simple(loop: Divided) -> bool:
    return len(loop.asks) == 1 and not loop.carried and not loop.random and not loop.before


def _why(loop: Divided, settings: Mapping[str, Any], plain: bool | None) -> str:
    does = [f"calls its model {len(loop.asks)} times a step"] if len(loop.asks) > 1 else []
    does += [f"remembers {', '.join(loop.carried)}"] if loop.carried else []
    does += ["draws noise"] if loop.random else []
    said = " and ".join(does) or "has a step of its own"
    if plain:
        return f"{loop.sampling.function} computes its own noise levels: their statements are copied"
    compared = "no installed scheduler reproduces its steps" if plain is False else "its values could not be computed"
    return f"{loop.sampling.function} {said}; {compared}: its statements are copied"
