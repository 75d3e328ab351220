"""Training steps of several processes, as a case asks for them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omni_kit.parity.parts import even_and_odd, one_a_rank, save_batches
from omni_kit.parity.process import GRACE, StepError, Worker
from omni_kit.parity.tensors import load_tensors
from omni_kit.targets.builder import Candidate, Tensors

Step = tuple[Tensors, Tensors]


@dataclass(frozen=True)
class Trained:
    """What training on one mesh gave.

    Attributes:
        dtype: in which the weights were.
        alone: in one process.
        steps: for each batch, the loss and the norm of the gradients, and the gradients.
    """

    mesh: str
    dtype: str
    alone: bool
    steps: Sequence[Step]


class Training:
    """Starts processes of a candidate from one that has imported it.

    Args:
        launcher: that process; None where no level needs it.
        device: "cpu" or "cuda".
    """

    def __init__(self, launcher: Worker | None, candidate: Candidate, device: str) -> None:
        self._launcher = launcher
        self._device = device
        self._opened: bool | StepError | None = None  # not asked yet
        if launcher is not None:
            options = {**candidate.options, "device": device, "alone": False}
            launcher.send("open", builder=candidate.builder, options=options, forbidden=[])

    def on(
        self,
        level: str,
        checkpoint: Path,
        where: Path,
        inputs: Tensors,
        note: Callable[[str], None],
        fault: str = "",
    ) -> list[Trained] | str:
        """One step on each mesh of a level, or why the level makes no sense for this model.

        Args:
            where: the directory for batches and results.
            inputs: the batch of the comparison.
            note: is told what was stood in for, and what was left out.
            fault: one to plant between the processes.

        Raises:
            StepError: the integration cannot be imported, or a process failed.
        """
        launcher = self._ready()
        meshes = launcher.ask("meshes", level=level, config_dir=str(checkpoint))
        if isinstance(meshes, str):
            return meshes
        parts = int(meshes[0]["parts"])
        batches = even_and_odd(inputs) if parts == 1 else one_a_rank(inputs, parts)
        save_batches(batches, where / "batches")
        paths = {"checkpoint": str(checkpoint), "batches": str(where / "batches")}
        return [self._launch(launcher, mesh, where, {**paths, "fault": fault}, note) for mesh in meshes]

    def _ready(self) -> Worker:
        if self._launcher is None:
            raise StepError("no process was started to launch others from")
        if self._opened is None:
            try:
                self._launcher.receive("open")
                self._opened = True
            except StepError as error:
                self._opened = error
        if isinstance(self._opened, StepError):
            raise self._opened
        return self._launcher

    def _launch(
        self, launcher: Worker, mesh: dict[str, Any], where: Path, paths: dict[str, str], note: Callable[[str], None]
    ) -> Trained:
        out = where / str(mesh["name"]).replace(" ", "-")
        timeout = launcher.timeout - GRACE
        for line in launcher.ask("launch", mesh=mesh, device=self._device, timeout=timeout, out=str(out), **paths):
            note(line)
        count = len(list(out.glob("*.figures.safetensors")))
        steps = [
            (load_tensors(out / f"{index}.figures.safetensors"), load_tensors(out / f"{index}.gradients.safetensors"))
            for index in range(count)
        ]
        return Trained(str(mesh["name"]), str(mesh["dtype"]), mesh["processes"] == 1, steps)
