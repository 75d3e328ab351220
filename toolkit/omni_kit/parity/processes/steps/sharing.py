"""Steps about kernels and about several processes."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from omni_kit.parity.compare.files import load_tensors
from omni_kit.parity.processes.batches import save_batches
from omni_kit.parity.processes.side import Side, placed
from omni_kit.parity.processes.step import Step
from omni_kit.targets.sides import Mesh
from omni_kit.toys.batches.protocol import Staged


@dataclass(frozen=True)
class Slots(Step[list[dict[str, Any]]]):
    """Every kernel slot that the integration declares, as the fields of a `Slot`."""

    config_dir: Path

    def take(self, side: Side) -> list[dict[str, Any]]:
        """See `Step.take`."""
        return [asdict(slot) for slot in side.slotted.slots(self.config_dir)]


@dataclass(frozen=True)
class RunWith(Step[list[str]]):
    """Runs as `Run` does, on the checkpoint reloaded with a kernel in a slot; answers the slot's calls."""

    checkpoint: Path
    slot: str
    kernel: str
    dtype: str
    inputs: Path
    out: Path

    def take(self, side: Side) -> list[str]:
        """See `Step.take`."""
        slotted = side.slotted
        model = slotted.load_with(self.checkpoint, self.slot, self.kernel, self.dtype)
        side.run(model, self.inputs, self.out, lambda batch: slotted.forward_with(model, self.slot, batch))
        return slotted.calls().get(self.slot, [])


@dataclass(frozen=True)
class LostArguments(Step[list[str]]):
    """Finds the arguments of a training step that do not arrive where needed; see `Slotted.lost_arguments`."""

    checkpoint: Path
    inputs: Path

    def take(self, side: Side) -> list[str]:
        """See `Step.take`."""
        model = side.builder.load(self.checkpoint)
        return side.slotted.lost_arguments(model, placed(model, load_tensors(self.inputs)))


@dataclass(frozen=True)
class Meshes(Step[list[dict[str, Any]] | str]):
    """Lists the meshes of a level of several processes, as the fields of a `Mesh`; or why the level does not apply."""

    level: str
    config_dir: Path

    def take(self, side: Side) -> list[dict[str, Any]] | str:
        """See `Step.take`."""
        found = side.distributed.meshes(self.level, self.config_dir)
        return found if isinstance(found, str) else [asdict(mesh) for mesh in found]


@dataclass(frozen=True)
class MakeBatches(Step[list[str]]):
    """Writes batches for several processes, each of so many parts, below `out`; answers what each is about.

    Those of the comparison's own inputs, which come first, are about nothing else.
    """

    inputs: Path
    parts: int
    out: Path

    def take(self, side: Side) -> list[str]:
        """See `Step.take`."""
        inputs, batch_builder = load_tensors(self.inputs), side.batch_builder
        own = batch_builder.whole(inputs) if self.parts == 1 else batch_builder.apart(inputs, self.parts)
        more = batch_builder.staged(side.model, self.parts) if isinstance(batch_builder, Staged) else {}
        save_batches([*own, *more.values()], self.out)
        return [*("" for _ in own), *more]


@dataclass(frozen=True)
class Launch(Step[list[str]]):
    """Trains one step in all processes of a mesh; answers what is to be said about it.

    Attributes:
        timeout: seconds after which every process writes its stack and ends.
        fault: one to plant between the processes.
    """

    mesh: Mapping[str, Any]
    device: str
    checkpoint: Path
    batches: Path
    out: Path
    timeout: float
    fault: str = ""

    def take(self, side: Side) -> list[str]:
        """See `Step.take`."""
        from omni_kit.parity.processes.ranks import Job, launch

        job = Job(
            side.builder_name,
            side.options,
            self.device,
            self.checkpoint,
            self.batches,
            Mesh(**self.mesh),
            self.out,
            self.timeout,
            self.fault,
        )
        launch(job, side.distributed)
        return list(json.loads((self.out / "notes.json").read_text(encoding="utf-8")))
