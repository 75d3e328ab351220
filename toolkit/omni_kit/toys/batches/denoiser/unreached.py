"""Find what a comparison of a toy does not reach: arguments left out, and inputs without effect on the output."""

import inspect
from typing import Any

import torch

from omni_kit.toys.batches.denoiser.arguments import TARGET, ask_again
from omni_kit.toys.batches.denoiser.samples import samples_of
from omni_kit.toys.tensors import Tensors


def unreached(model: Any, inputs: Tensors) -> list[str]:
    """Return one line of a report for each kind, about the first sample; an empty list if all is reached."""
    sample = {name: one for name, one in samples_of(inputs)[0].items() if name != TARGET}
    left, unread = ", ".join(_left_out(model, sample)), ", ".join(_without_effect(model, sample))
    said = {
        f"forward was called without {left}": left,
        f"the output of the toy does not depend on {unread}: what reads it is not compared": unread,
    }
    return [line for line, names in said.items() if names]


def _left_out(model: Any, sample: Tensors) -> list[str]:
    """Return the arguments of forward with null as their default that a sample does not have."""
    parameters = inspect.signature(inspect.unwrap(type(model).forward)).parameters.values()
    return [one.name for one in parameters if one.default is None
            and not any(_is_of(name, one.name) for name in sample)]  # fmt: skip


def _is_of(name: str, argument: str) -> bool:
    """Return whether a tensor of a sample belongs to an argument: `text[0]` belongs to `text`."""
    return name.startswith(argument) and not name[len(argument) :][:1].isidentifier()


def _without_effect(model: Any, sample: Tensors) -> list[str]:
    """Return the inputs of which no change changes the output; numbers of things are not changed."""
    found = []
    try:
        with torch.no_grad():
            first = ask_again(model, sample)
            if not torch.equal(first, ask_again(model, sample)):
                return []
            for name, one in sample.items():
                if one.is_floating_point() and one.numel():
                    changed = ask_again(model, {**sample, name: one * 0.5 + 0.25})
                    found += [name] if torch.equal(first, changed) else []
    except Exception:  # whatever the authors' code says of other numbers
        return []
    return found
