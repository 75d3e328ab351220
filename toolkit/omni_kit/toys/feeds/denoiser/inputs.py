"""Two samples for a diffusion transformer, by the arguments that its forward names."""

import inspect
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from omni_kit.errors import BadInput
from omni_kit.toys.feeds.denoiser.arguments import TARGET, ask
from omni_kit.toys.feeds.denoiser.layouts import Layout, layouts
from omni_kit.toys.feeds.denoiser.roles import Argument, options
from omni_kit.toys.feeds.denoiser.sizes import SCALE, Sizes, is_film, widths_of
from omni_kit.toys.feeds.denoiser.trial import Chosen, Reach, Trial
from omni_kit.toys.tensors import Tensors
from omni_kit.toys.weights import shuffled_ramp

_SAMPLES = 2


def denoiser_inputs(model: Any) -> Tensors:
    """Two samples for a diffusion transformer of diffusers, by the arguments that its forward names.

    Returns:
        For each sample, what forward takes, and `training_target`, of the shape of its answer: velocities.

    Raises:
        BadInput: forward wants something that there is no rule for.
    """
    inputs: Tensors = {}
    for index in range(_SAMPLES):
        sample, answer = _sample(model, index)
        sample[TARGET] = SCALE * shuffled_ramp(f"denoiser {index} target", answer.shape)
        inputs |= {f"{index}.{name}": tensor for name, tensor in sample.items()}
    return inputs


def _sample(model: Any, index: int) -> tuple[Tensors, torch.Tensor]:
    sizes = Sizes(index, model.config, widths_of(model))
    names = _arguments(model)
    latents, *others = names
    choices: dict[str, list[Any]] = {latents.name: layouts(latents, sizes, [one.name for one in names])}
    for argument in others:
        if (found := options(argument, sizes)) is not None:
            choices[argument.name] = found if argument.required else [*found, None]
        elif argument.required:
            raise BadInput(f"{type(model).__name__}.forward wants '{argument.name}', for which there is no rule yet")
    def make(chosen: Chosen) -> Tensors:
        layout: Layout = choices[latents.name][chosen[latents.name]]
        laid = replace(sizes, film=layout.film)
        given: Tensors = {}
        for name, at in chosen.items():
            if (option := choices[name][at]) is not None:
                given |= {name + where: tensor for where, tensor in option(laid).items()}
        return _placed(given, model)
    trial = Trial(model, choices, make)
    chosen, reach = trial.run()
    if reach.answer is None:
        raise BadInput(f"{type(model).__name__}.forward takes none of the inputs that there are rules for: {reach.error}")
    chosen = trial.settle(chosen)
    reach = trial.reach(chosen)
    denoiser_inputs.trial = (trial.calls, chosen)
    return make(chosen), reach.answer


def _arguments(model: Any) -> list[Argument]:
    forward = inspect.unwrap(type(model).forward)
    parameters = list(inspect.signature(forward).parameters.values())[1:]
    sigmas = "img_shapes" in (one.name for one in parameters) or bool(_SCALED.search(inspect.getsource(forward)))
    return [
        Argument(one.name, str(one.annotation), one.default is one.empty, sigmas)
        for one in parameters
        if one.kind not in (one.VAR_KEYWORD, one.VAR_POSITIONAL)
    ]


_SCALED = re.compile(r"(timestep|\bt|noise_time)\b[^\n=]*\* *(1000|self\.\w*(t_scale|max))")


def _placed(sample: Tensors, model: nn.Module) -> Tensors:
    device = next(model.parameters()).device
    return {name: tensor.to(device) for name, tensor in sample.items()}
