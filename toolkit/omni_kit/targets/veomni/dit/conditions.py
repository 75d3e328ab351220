"""Variables for the templates of a condition model."""

import ast
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from omni_kit.pysource.source import dotted
from omni_kit.targets.veomni.dit.transformer import TransformerContext
from omni_kit.upstream.diffusers.affine import Affine
from omni_kit.upstream.diffusers.calling import FRAMES, GUIDANCE, frames_of, guidance_argument, seconds_of
from omni_kit.upstream.diffusers.classes import find_class
from omni_kit.upstream.diffusers.decoding import decodes_in_tiles_alone
from omni_kit.upstream.diffusers.defaults import images_needed
from omni_kit.upstream.diffusers.denoising import Denoising
from omni_kit.upstream.diffusers.models import ComponentModel
from omni_kit.upstream.diffusers.pipelines import Pipeline
from omni_kit.upstream.diffusers.signatures import STEP_NAMES, arguments

_WITHOUT_FILES = frozenset({"denoiser", "guider", "other"})


@dataclass(frozen=True)
class ConditionContext:
    """The names that the templates of a model of conditions may use.

    Attributes:
        name, class_name, upstream, veomni: as those of the transformer; `key`, as which it is registered.
        pipeline, denoiser, vae: the class of the pipeline, and two of its components; empty without a pipeline.
        tiles: the autoencoder works in tiles alone.
        asks_early: the pipeline reads its denoiser while it is made.
        parts: the components that have a folder of their own, save the denoiser.
        latents, step, conditions: the arguments of the transformer's forward; `listed`, that latents come in a list.
        convention, convention_where, mean_of, deviation_of, scaled: how latents are scaled; see `LatentScale`.
        scale, step_text, step_where: how the transformer is told a step of the scheduler, as Python text; `known_step`,
            that it could be read.
        guidance: the argument of its call for the guidance scale.
        changing: the conditions that its loop computes at each step.
        frames: what the pipeline calls the number of frames; `films`, that it makes films.
        pictures: the arguments of its call that are the pictures it starts from.
        sees: the pipeline has a processor of pictures or videos.
        seconds: what a pipeline of sounds calls their length; empty for others.
        sign: -1 where the pipeline negates the output.
        patch: how many places of a grid are one token.
    """

    name: str
    class_name: str
    upstream: str
    veomni: str
    key: str
    pipeline: str
    denoiser: str
    vae: str
    tiles: bool
    asks_early: bool
    parts: Sequence[str]
    latents: str
    step: str
    conditions: Sequence[str]
    listed: bool
    convention: str
    convention_where: str
    mean_of: str
    deviation_of: str
    scaled: bool
    scale: float
    step_text: str
    step_where: str
    known_step: bool
    guidance: str
    changing: Sequence[str]
    frames: str
    films: bool
    pictures: Sequence[str]
    sees: bool
    seconds: str
    sign: int
    patch: int


@dataclass(frozen=True)
class Conditions:
    """Facts about the call of a transformer.

    Attributes:
        pipeline: one that has it as its denoiser; None if there is none that asks with a prompt alone.
    """

    model: ComponentModel
    pipeline: Pipeline | None

    @cached_property
    def denoising(self) -> Denoising | None:
        """The pipeline's call of the transformer."""
        return Denoising(self.pipeline, self.model) if self.pipeline is not None else None

    @property
    def unit(self) -> Affine | None:
        """The transformer's unit of steps; None if it could not be read."""
        return self.denoising.unit if self.denoising is not None else None

    def context(self, transformer: TransformerContext) -> ConditionContext:
        """Return the context of the templates."""
        taken, denoising = arguments(self.model.cls, "forward"), self.denoising
        first, step = next(iter(taken)), next((name for name in taken if name in STEP_NAMES), "")
        scale = denoising.scale if denoising is not None else None
        unit = self.unit or Affine(1.0)
        frames = frames_of(self.pipeline) if self.pipeline is not None else ""
        sees = denoising is not None and denoising.sees
        return ConditionContext(
            name=transformer.name,
            class_name=transformer.class_name,
            upstream=transformer.upstream,
            veomni=transformer.veomni,
            key=transformer.condition_key,
            pipeline=self.pipeline.cls.node.name if self.pipeline is not None else "",
            denoiser=self.pipeline.denoiser.name if self.pipeline is not None else "",
            vae=denoising.autoencoder if denoising is not None else "",
            tiles=self._tiles,
            asks_early=self._asks_early,
            parts=self._parts,
            latents=first,
            step=step,
            conditions=[one.name for one in transformer.inputs if one.name not in (first, step, "latents", "kwargs")],
            listed=taken[first].annotation.lower().startswith("list"),
            convention=scale.convention if scale is not None else "",
            convention_where=scale.where if scale is not None else "",
            mean_of=scale.mean if scale is not None else "",
            deviation_of=scale.deviation if scale is not None else "",
            scaled=scale is not None and scale.scaled,
            scale=unit.scale,
            step_text=_text(unit),
            step_where=denoising.where if denoising is not None else "",
            known_step=self.unit is not None,
            guidance=guidance_argument(self.pipeline) if self.pipeline is not None else GUIDANCE,
            changing=denoising.changing if denoising is not None else [],
            frames=frames or FRAMES[0],
            films=bool(frames),
            pictures=images_needed(self.pipeline) if self.pipeline is not None else [],
            sees=sees,
            seconds=seconds_of(self.pipeline) if self.pipeline is not None and not sees else "",
            sign=denoising.sign if denoising is not None else 1,
            patch=self._patch,
        )

    @property
    def _parts(self) -> list[str]:
        components = self.pipeline.components if self.pipeline is not None else ()
        return [one.name for one in components if one.role not in _WITHOUT_FILES]

    @property
    def _tiles(self) -> bool:
        components = self.pipeline.components if self.pipeline is not None else ()
        found = (find_class(self.model.library, one.class_name) for one in components if one.role == "autoencoder")
        return any(one is not None and decodes_in_tiles_alone(one) for one in found)

    @property
    def _asks_early(self) -> bool:
        """Return whether the pipeline's constructor reads an attribute of its denoiser, as sizes from its config."""
        found = self.pipeline.cls.method("__init__") if self.pipeline is not None else None
        if self.pipeline is None or found is None:
            return False
        own = f"self.{self.pipeline.denoiser.name}"
        return any(isinstance(node, ast.Attribute) and dotted(node.value) == own for node in ast.walk(found[1]))

    @property
    def _patch(self) -> int:
        """Places of latents for a token, along all axes."""
        size = self.model.value("patch_size")[0]
        if isinstance(size, list | tuple) and all(isinstance(one, int) for one in size):
            return math.prod(size)
        return size**2 if isinstance(size, int) else 1


def _text(unit: Affine) -> str:
    """Return a unit as an expression of `step`."""
    factor = "step" if unit.scale == 1 else f"{unit.scale!r} * step"
    if abs(unit.scale) and unit.scale != 1 and (1 / abs(unit.scale)).is_integer():
        factor = f"{'-' if unit.scale < 0 else ''}step / {int(1 / abs(unit.scale))}"
    return f"{unit.offset!r} + {factor}".replace("+ -", "- ") if unit.offset else factor
