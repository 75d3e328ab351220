"""What a feed is. Nothing else in the house knows what a batch is made of."""

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


class Feed(Protocol):
    """Makes batches for one sort of model, divides them, and knows what the answers are. Made without arguments."""

    def batch(self, model: Any, run: Run) -> Tensors:
        """The batch for upstream's model, the same in every process.

        Args:
            run: what upstream answers to a batch, its losses alone.

        Raises:
            BadInput: the model requires something that there is no rule for.
        """

    def mask(self, batch: Tensors) -> "torch.Tensor":
        """Which places of the answers count, as their leading dimensions have it; a single one where all of them do."""

    def judged(self, names: Sequence[str]) -> list[str]:
        """Of the names of all answers, those that are judged in low precision: no sums such as losses."""

    def whole(self, batch: Tensors) -> list[Batch]:
        """Batches of one part with all samples: of a size that four processes share evenly, and of an odd one."""

    def apart(self, batch: Tensors, count: int) -> list[Batch]:
        """One batch of `count` parts with a sample each, no two alike."""

    def frames(self, batch: Tensors, answers: Tensors) -> "Mapping[str, torch.Tensor]":
        """Answers that can be looked at: name -> picture [rows, columns, 3], of any range; none for most."""


class Fed(StrEnum):
    """How samples come to a model, where a framework prepares them."""

    alone = "alone"
    """One after the other, each prepared as a framework does."""
    unprepared = "unprepared"
    """As `alone`, without what can be made beforehand and the model can make itself."""
    packed = "packed"
    """All together, as a framework packs them; without the router's loss, which upstream takes sample by sample."""


@dataclass(frozen=True)
class CallScenario:
    """One way in which a model is called.

    Attributes:
        inputs: tensors that forward takes by name.
        switches: further arguments of forward, as JSON knows them.
        training: whether the model is in training mode.
        backward: gradients are answers, too.
        checkpointing: layers are computed again for them.
        embedded: ids are looked up first, and forward gets what was found.
        new: so many tokens follow one at a time, from a cache.
        generated: so many tokens are made by the model itself.
        fed: one of `Fed`, where the inputs are samples that have to be prepared; upstream takes each as it is.
        compared: the only fields of the answer that are asked for; all of them where there is none.
        bare: a framework prepares more for such a model than stands here, and the model may want it.
        attention: the implementation of attention, by the library's name; empty for the plain one.
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
    fed: str = ""
    compared: Sequence[str] = ()
    bare: bool = False
    attention: str = ""


@runtime_checkable
class Staged(Protocol):
    """A feed that has further batches for several processes."""

    def staged(self, model: Any, parts: int) -> Mapping[str, Batch]:
        """What each is about -> the batch, of one part or of as many as are asked for.

        Args:
            model: upstream's.
        """


@runtime_checkable
class ManyWays(Protocol):
    """A feed that knows more than one way of calling a model."""

    def ways(self, model: Any) -> Sequence[CallScenario]:
        """Those that make sense for upstream's model, in the order in which they are reported."""


__getattr__ = old_names(__name__, {"Way": "CallScenario"})
