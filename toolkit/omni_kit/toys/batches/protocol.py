"""The protocol of batch builders; no other package knows what a batch contains."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from omni_kit.renamed import old_names
from omni_kit.toys.tensors import Tensors

if TYPE_CHECKING:
    import torch

Run = Callable[[Tensors], Tensors]
# The parts of one step, each for one data-parallel rank; and of each part the samples, as upstream takes them.
Batch = list[list[Tensors]]


class BatchBuilder(Protocol):
    """Builds and splits batches for one kind of model, and selects the outputs to compare; needs no arguments."""

    def batch(self, model: Any, run: Run) -> Tensors:
        """Return the batch for upstream's model, the same in every process.

        Args:
            run: runs upstream's model on a batch and returns its losses.

        Raises:
            BadInput: the model requires an argument that no rule covers.
        """

    def mask(self, batch: Tensors) -> "torch.Tensor":
        """Return the positions of the outputs to compare, over their leading dimensions; one element for all."""

    def judged(self, names: Sequence[str]) -> list[str]:
        """Return the names of the outputs to compare in low precision: no sums such as losses."""

    def whole(self, batch: Tensors) -> list[Batch]:
        """Return batches of one part with all samples: one divisible among four processes, and one that is not."""

    def apart(self, batch: Tensors, count: int) -> list[Batch]:
        """Return one batch of `count` parts with one distinct sample each."""

    def frames(self, batch: Tensors, answers: Tensors) -> "Mapping[str, torch.Tensor]":
        """Return outputs to display: name -> image [rows, columns, 3], of any range; most kinds have none."""


class Preparation(StrEnum):
    """Preparation of samples by the model's framework."""

    alone = "alone"
    """One after the other, each prepared as the framework does."""
    unprepared = "unprepared"
    """Samples as in `alone`, without the inputs that the model can also compute itself."""
    packed = "packed"
    """All together, as the framework packs them; without the router's loss, which upstream computes for each sample."""


@dataclass(frozen=True)
class CallScenario:
    """One call of a model to compare.

    Attributes:
        inputs: tensors that forward takes by name.
        switches: other arguments of forward, JSON values.
        training: whether the model is in training mode.
        backward: whether to compare gradients, too.
        checkpointing: whether gradient checkpointing is on.
        embedded: whether forward gets embeddings instead of token ids.
        new: number of tokens to decode one at a time, from a cache.
        generated: number of tokens to generate with the model's `generate`.
        preparation: a `Preparation`, if the framework prepares samples; upstream takes each sample unprepared.
        compared: the output fields to compare; empty for all.
        bare: whether the framework prepares more than these inputs, so that the model may require it.
        attention: the library's name of the attention implementation; empty for the default.
    """

    name: str
    inputs: Tensors
    switches: Mapping[str, Any] = field(default_factory=dict)
    training: bool = True
    backward: bool = False
    checkpointing: bool = False
    embedded: bool = False
    new: int = 0
    generated: int = 0
    preparation: str = ""
    compared: Sequence[str] = ()
    bare: bool = False
    attention: str = ""


@runtime_checkable
class Staged(Protocol):
    """A batch builder with more batches for several processes."""

    def staged(self, model: Any, parts: int) -> Mapping[str, Batch]:
        """Return description -> batch, of one part or of `parts` parts.

        Args:
            model: upstream's model.
        """


@runtime_checkable
class HasScenarios(Protocol):
    """A batch builder with several call scenarios."""

    def scenarios(self, model: Any) -> Sequence[CallScenario]:
        """Return the scenarios that apply to upstream's model, in report order."""


__getattr__ = old_names(
    __name__, {"Way": "CallScenario", "Feed": "BatchBuilder", "Fed": "Preparation", "ManyWays": "HasScenarios"}
)
