"""Mistakes that the blocks of a modular pipeline can make on purpose."""

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from omni_kit.targets.diffusers.runtime.changing import LATENTS_SCALES, Tiled, Turned, anywhere, otherwise
from omni_kit.targets.replacing import replaced
from omni_kit.targets.sides import StageFault
from omni_kit.upstream.diffusers.guiders import COMPONENT

FORMULA, SIGMAS, SWAPPED, SCALE, ROWS = (
    "guidance-formula", "sigma-off-by-one", "prompt-and-negative-swapped", "latents-scale", "batch-expansion"
)  # fmt: skip
_HALF = 0.5


def faults_of(modular: Any, standard: Any) -> Sequence[StageFault]:
    """Return the faults that apply here, each with the first stage that shows it."""
    found = []
    if hasattr(standard.scheduler, "sigmas"):
        found.append(StageFault(SIGMAS, "every sigma is shifted by one step", ("sigmas", "timesteps")))
    if "negative_prompt" in modular.blocks.input_names:
        found.append(StageFault(SWAPPED, "the two are swapped", ("positive ",)))
    if any(True for _ in _guiders(modular)) or any(True for _ in _guiding(modular.blocks)):
        found.append(StageFault(FORMULA, "guidance scales from the wrong output", ("step 0 guided",)))
    if any(True for _ in anywhere(_classes(modular), Tiled)):
        found.append(StageFault(ROWS, "rows are repeated as a whole for each prompt", ("positive ",)))
    if hasattr(getattr(standard, "vae", None), "decode"):
        found.append(StageFault(SCALE, "the autoencoder receives half of the latents", ("picture",)))
        for kind, (what, change) in LATENTS_SCALES.items():
            if any(True for _ in anywhere(_classes(modular), change)):
                found.append(StageFault(kind, what, ("picture",)))
    return found


@contextmanager
def made(modular: Any, standard: Any, kind: str) -> Iterator[None]:
    """The blocks make that mistake; afterwards they do not."""
    with ExitStack() as stack:
        if kind == FORMULA:
            for guider in list(_guiders(modular)):
                stack.enter_context(replaced(type(guider), "forward", _turned(type(guider).forward)))
            for cls, wrong in list(_guiding(modular.blocks)):
                stack.enter_context(replaced(cls, "__call__", wrong))
        elif kind == ROWS or kind in LATENTS_SCALES:
            change = LATENTS_SCALES[kind][1] if kind in LATENTS_SCALES else Tiled
            for owner, name, wrong in list(anywhere(_classes(modular), change)):
                stack.enter_context(replaced(owner, name, wrong))
        elif kind == SIGMAS:
            right = standard.scheduler.set_timesteps
            stack.enter_context(replaced(standard.scheduler, "set_timesteps", _rolled(standard.scheduler, right)))
        elif kind == SCALE:
            stack.enter_context(replaced(standard.vae, "decode", _halved(standard.vae.decode)))
        yield


def swapped(given: dict[str, Any]) -> dict[str, Any]:
    """Return a call in which a prompt and the one against it have changed places."""
    if given.get("negative_prompt") is None:
        return given
    return {**given, "prompt": given["negative_prompt"], "negative_prompt": given["prompt"]}


def _guiding(block: Any) -> Iterator[tuple[type, Callable[..., Any]]]:
    """Yield the classes of blocks that guide, each with what it would do wrongly."""
    inner = list(block.sub_blocks.values())
    for one in inner:
        yield from _guiding(one)
    wrong = otherwise(type(block).__call__, Turned()) if not inner else None
    if wrong is not None:
        yield type(block), wrong


def _guiders(modular: Any) -> Iterator[Any]:
    """Yield the guiders of a pipeline, one of each class."""
    found = {name: getattr(modular, name, None) for name in modular.component_names if name.startswith(COMPONENT)}
    yield from {type(one): one for one in found.values() if one is not None}.values()


def _turned(right: Callable[..., Any]) -> Callable[..., Any]:
    """Continue from the other output."""

    def forward(self: Any, pred_cond: Any, pred_uncond: Any = None) -> Any:
        found = right(self, pred_cond, pred_uncond)
        if pred_uncond is not None:
            found["pred"] = found["pred"] + (pred_cond - pred_uncond)
        return found

    return forward


def _classes(modular: Any) -> set[type]:
    return {type(modular), *(type(block) for block in _leaves(modular.blocks))}


def _leaves(block: Any) -> Iterator[Any]:
    inner = list(block.sub_blocks.values())
    yield from (one for each in inner for one in _leaves(each)) if inner else iter([block])


def _rolled(scheduler: Any, right: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(right)
    def set_timesteps(*args: Any, **kwargs: Any) -> Any:
        answer = right(*args, **kwargs)
        if isinstance(scheduler.sigmas, torch.Tensor):
            scheduler.sigmas = scheduler.sigmas.roll(1)
        return answer

    return set_timesteps


def _halved(right: Callable[..., Any]) -> Callable[..., Any]:
    return lambda latents, *args, **kwargs: right(latents * _HALF, *args, **kwargs)
