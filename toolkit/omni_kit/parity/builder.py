"""What a side of a comparison must be able to do, and how its process finds it."""

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from omni_kit.errors import BadInput

if TYPE_CHECKING:
    import torch

Tensors = dict[str, "torch.Tensor"]


class Builder(Protocol):
    """One side: the reference (upstream) or the candidate (the integration). Lives in a process of its own."""

    def open(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Imports what the side needs; returns JSON-ready facts about it."""

    def shapes(self, config_dir: Path) -> dict[str, list[int]]:
        """Name -> shape of every parameter and persistent buffer, without loading weights."""

    def load(self, checkpoint: Path, dtype: str = "float32") -> "torch.nn.Module":
        """The model with the weights of a checkpoint in the upstream's layout, in training mode."""

    def save(self, model: "torch.nn.Module", checkpoint: Path, out: Path) -> None:
        """Writes the model as this side exports it after training from `checkpoint`."""

    def forward(self, model: "torch.nn.Module", inputs: Tensors) -> Tensors:
        """Named outputs for these inputs, among them `loss`: the scalar from which the backward pass starts."""

    def notes(self) -> list[str]:
        """What the last forward did not do as in real life, one line each."""


class Upstream(Builder, Protocol):
    """The reference side also decides what is compared: the toy and the batch."""

    def make_toy(self, source: str) -> "torch.nn.Module":
        """A small model with deterministic weights, from a model_type or a config file."""

    def save_toy(self, model: "torch.nn.Module", out: Path, layout: str) -> None:
        """Writes a toy's checkpoint: "hub" as upstream publishes it, "memory" with the names that the model has."""

    def inputs(self, model: "torch.nn.Module") -> Tensors:
        """The batch for this model, the same in every process."""


def make_builder(reference: str) -> Builder:
    """The builder that "package.module:Class" names.

    Raises:
        BadInput: there is no such class.
    """
    module, _, name = reference.partition(":")
    try:
        return cast(Builder, getattr(importlib.import_module(module), name)())
    except (ModuleNotFoundError, AttributeError) as error:
        raise BadInput(f"no builder {reference}: {error}") from error
