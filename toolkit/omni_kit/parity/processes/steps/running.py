"""Steps that run the loaded model."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from omni_kit.parity.processes.side import Pairs, Side
from omni_kit.parity.processes.step import Step
from omni_kit.targets.sides import Tabulating
from omni_kit.toys.weights import nudged


@dataclass(frozen=True)
class Run(Step[dict[str, list[str]]]):
    """Runs forward and backward, and leaves the results below `out`.

    Answers the names of all `parameters`, and as `notes` what is to be said about the run.
    """

    inputs: Path
    out: Path

    def take(self, side: Side) -> dict[str, list[str]]:
        """See `Step.take`."""
        side.run(side.model, self.inputs, self.out)
        return {"parameters": [name for name, _ in side.model.named_parameters()], "notes": side.builder.notes()}


@dataclass(frozen=True)
class RunNudged(Step[None]):
    """Runs as `Run` does, with every weight moved to the next float32 number and tables rounded: rounding alone.

    Attributes:
        salt: another number moves other weights up and others down.
    """

    inputs: Path
    out: Path
    salt: int = 0

    def take(self, side: Side) -> None:
        """See `Step.take`."""
        tables = side.builder.rounded_tables() if isinstance(side.builder, Tabulating) else nullcontext()
        with nudging(side.model, salt=self.salt), tables:
            side.run(side.model, self.inputs, self.out)


@contextmanager
def nudging(model: Any, *, restore: bool = True, salt: int = 0) -> Iterator[None]:
    """Every weight is the next float32 number while this is entered, and what it was afterwards, if `restore`.

    Args:
        salt: another number moves other weights up and others down.
    """
    exact = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    _set(model, {name: nudged(f"{name}{salt or ''}", one) for name, one in model.named_parameters()})
    try:
        yield
    finally:
        if restore:
            _set(model, exact)


def _set(model: Any, values: dict[str, torch.Tensor]) -> None:
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(values[name])


@dataclass(frozen=True)
class Trace(Step[None]):
    """Records everything that goes in and out of every module, into the directory `out`."""

    inputs: Path
    out: Path

    def take(self, side: Side) -> None:
        """See `Step.take`."""
        side.trace(self.inputs, self.out)


@dataclass(frozen=True)
class Replay(Step[None]):
    """Runs with every paired module fed, and its answer replaced, from the recording in the directory `script`.

    With `complete`, each module also gets what it is not passed.
    """

    inputs: Path
    script: Path
    out: Path
    pairs: Pairs = field(default_factory=list)
    complete: bool = False

    def take(self, side: Side) -> None:
        """See `Step.take`."""
        side.replay(side.model, self.inputs, self.script, self.pairs, self.out, complete=self.complete)


@dataclass(frozen=True)
class RunAs(Step[list[str]]):
    """Loads the checkpoint once more in another dtype, runs it, and replays a recording in it.

    Answers what is to be said about it.
    """

    checkpoint: Path
    dtype: str
    inputs: Path
    script: Path
    out: Path
    pairs: Pairs = field(default_factory=list)

    def take(self, side: Side) -> list[str]:
        """See `Step.take`."""
        model = side.builder.load(self.checkpoint, self.dtype)
        side.run(model, self.inputs, self.out)
        side.replay(model, self.inputs, self.script, self.pairs, self.out / "replay", counted=True)
        return side.builder.notes()
