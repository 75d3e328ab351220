"""Steps that plant faults in the candidate's model, or have its stages make them."""

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from omni_kit.parity.compare.files import load_tensors, save_tensors
from omni_kit.parity.faults import FAULTS
from omni_kit.parity.faults.conversion import CONVERSION
from omni_kit.parity.faults.fault_injection import find_places, planted
from omni_kit.parity.processes.side import Pairs, Side, placed
from omni_kit.parity.processes.step import Step
from omni_kit.targets.sides import Renaming


@dataclass(frozen=True)
class Places(Step[list[dict[str, Any]]]):
    """Finds the places for faults in the loaded model."""

    inputs: Path

    def take(self, side: Side) -> list[dict[str, Any]]:
        """See `Step.take`."""
        model = side.model
        batch = placed(model, load_tensors(self.inputs))
        faults = (*CONVERSION, *FAULTS) if isinstance(side.builder, Renaming) else FAULTS
        side.places = find_places(model, faults, lambda: side.builder.forward(model, batch))
        return [{**place.described(), "number": number} for number, place in enumerate(side.places)]


@dataclass(frozen=True)
class RunWithFault(Step[dict[str, bool]]):
    """Runs `Run`, `Trace` and `Replay` with a fault in the model, and writes the model's tensors.

    Answers whether the place was `reached`, whether it `changed` anything, and whether it was `unfit`.
    """

    number: int
    inputs: Path
    script: Path
    out: Path
    pairs: Pairs = field(default_factory=list)

    def take(self, side: Side) -> dict[str, bool]:
        """See `Step.take`."""
        with planted(side.model, side.places[self.number]) as outcome:
            save_tensors(side.state(side.model), self.out / "loaded.safetensors")
            side.run(side.model, self.inputs, self.out)
            side.trace(self.inputs, self.out / "trace")
            side.replay(side.model, self.inputs, self.script, self.pairs, self.out / "replay")
        return dict(vars(outcome))


@dataclass(frozen=True)
class RunWithNoise(Step[bool]):
    """Runs `Run` with noise added to what the code computes at the place of a fault; returns whether any could be."""

    number: int
    inputs: Path
    out: Path

    def take(self, side: Side) -> bool:
        """See `Step.take`."""
        with planted(side.model, side.places[self.number], noise=True) as outcome:
            side.run(side.model, self.inputs, self.out)
        return outcome.changed


@dataclass(frozen=True)
class CompleteFaults(Step[None]):
    """Replays as `Replay` does, each module given the arguments it was not passed, with a fault in the model."""

    number: int
    inputs: Path
    script: Path
    out: Path
    pairs: Pairs = field(default_factory=list)

    def take(self, side: Side) -> None:
        """See `Step.take`."""
        with planted(side.model, side.places[self.number]):
            side.replay(side.model, self.inputs, self.script, self.pairs, self.out, complete=True)


@dataclass(frozen=True)
class Mistakes(Step[list[dict[str, Any]]]):
    """Lists the mistakes that the candidate's stages can make on purpose, each a `StageFault`."""

    inputs: Path

    def take(self, side: Side) -> list[dict[str, Any]]:
        """See `Step.take`."""
        batch = placed(side.model, load_tensors(self.inputs))
        return [asdict(fault) for fault in side.fallible.faults(batch)]


@dataclass(frozen=True)
class RunMistaken(Step[None]):
    """Runs as `Run` does, while the candidate's stages make a mistake."""

    kind: str
    inputs: Path
    out: Path

    def take(self, side: Side) -> None:
        """See `Step.take`."""
        with side.fallible.mistaken(self.kind):
            side.run(side.model, self.inputs, self.out)
