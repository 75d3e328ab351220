"""Training steps of several processes, as a case asks for them."""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from omni_kit.isolation.worker import StepError, Worker
from omni_kit.parity.compare.files import load_tensors
from omni_kit.parity.processes.executed import Arcs
from omni_kit.parity.processes.steps import Executed, Launch, Loaded, Meshes, Open, PlanTraining, RunTrainer
from omni_kit.parity.processes.workers import GRACE
from omni_kit.targets.sides import Candidate, Mesh, TrainingRun
from omni_kit.toys.tensors import Tensors

TrainedStep = tuple[Tensors, Tensors]
# Several processes that take longer than so many seconds, and so many times what one took, hang.
_PATIENCE, _TIMES = 40.0, 10.0


@dataclass(frozen=True)
class Trained:
    """Results of training on one mesh.

    Attributes:
        steps: for each batch, the loss and the norm of the gradients, and the gradients.
        about: what is special about each batch; empty if nothing is.
        seconds: how long it took.
    """

    mesh: Mesh
    steps: Sequence[TrainedStep]
    about: Sequence[str]
    seconds: float

    @property
    def alone(self) -> bool:
        """Return whether one process did it all."""
        return self.mesh.processes == 1


class Training:
    """Starts processes of a candidate from one that has imported it.

    Args:
        launcher: that process; None if no level needs it.
        device: "cpu" or "cuda".
        measured: see `Open`.
    """

    def __init__(
        self, launcher: Worker | None, candidate: Candidate, device: str, measured: Sequence[str] | None = None
    ) -> None:
        self._launcher = launcher
        self._device = device
        self._opened: bool | StepError | None = None  # not asked yet
        if launcher is not None:
            options = {**candidate.options, "device": device, "alone": False}
            self._open = Open(candidate.builder, options, measured=measured)
            launcher.send(self._open)

    def on(
        self,
        level: str,
        checkpoint: Path,
        where: Path,
        batches: Callable[[int, Path], list[str]],
        note: Callable[[str], None],
    ) -> list[Trained] | str:
        """Return one step on each mesh of a level, or why the level makes no sense for this model.

        Args:
            where: the directory for batches and results.
            batches: writes those of so many parts below a directory, and says what each is about.
            note: is told what was stood in for, and what was left out.

        Raises:
            StepError: the integration cannot be imported, or a process failed.
        """
        launcher = self._ready()
        meshes = launcher.ask(Meshes(level, checkpoint))
        if isinstance(meshes, str):
            return meshes
        about = batches(int(meshes[0]["parts"]), where / "batches")
        trained: list[Trained] = []
        for mesh in meshes:
            trained.append(self._launched(Mesh(**mesh), checkpoint, where, about, trained[:1], note))
        return trained

    def wrongly(self, one: Trained, checkpoint: Path, where: Path, first: Trained, fault: str) -> tuple[Trained, bool]:
        """Return a mesh once more, with a fault between its processes; and whether that changed anything.

        Args:
            where: the directory of `on`, whose batches are taken.
            first: of one process.

        Raises:
            StepError: a process failed.
        """
        found = self._launched(one.mesh, checkpoint, where, one.about, [first], lambda line: None, fault)
        return found, any(_folder(where, one.mesh, fault).glob("planted"))

    def _launched(
        self,
        mesh: Mesh,
        checkpoint: Path,
        where: Path,
        about: Sequence[str],
        before: Sequence[Trained],
        note: Callable[[str], None],
        fault: str = "",
    ) -> Trained:
        """Run one launch, and read what it left; where one was `before`, it gets no more time than that suggests."""
        launcher, out, started = self._ready(), _folder(where, mesh, fault), time.monotonic()
        timeout = min([launcher.timeout - GRACE, *(_PATIENCE + _TIMES * one.seconds for one in before)])
        step = Launch(asdict(mesh), self._device, checkpoint, where / "batches", out, timeout, fault)
        for line in launcher.ask(step):
            note(line)
        steps = [
            tuple(load_tensors(out / f"{index}.{what}.safetensors") for what in ("figures", "gradients"))
            for index in range(len(about))
        ]
        taken = [(figures, gradients) for figures, gradients in steps]
        return Trained(mesh, taken, about, time.monotonic() - started)

    def plan(self, checkpoint: Path, where: Path) -> tuple[list[TrainingRun], list[str]]:
        """The runs of the framework's own trainer, and what is wrong with the training files.

        Raises:
            StepError: the integration cannot be imported.
        """
        found = self._ready().ask(PlanTraining(checkpoint, where))
        return [TrainingRun(**run) for run in found["runs"]], list(found["wrong"])

    def run(self, run: TrainingRun, out: Path) -> tuple[list[Path], list[str]]:
        """Run the trainer: the record of each process, and what is to be said.

        Raises:
            StepError: a process failed.
        """
        launcher = self._ready()
        step = RunTrainer(asdict(run), self._device, Path(run.checkpoint), out, launcher.timeout - GRACE)
        said = launcher.ask(step)
        return [out / f"rank{rank}.pt" for rank in range(run.processes)], said

    def loaded_files(self) -> list[str]:
        """Return the files that the processes have loaded.

        Raises:
            StepError: the one that starts them has ended.
        """
        return self._launcher.ask(Loaded()) if self._launcher is not None and self._opened is True else []

    def executed(self) -> Arcs:
        """Return the measured lines that the processes have executed.

        Raises:
            StepError: the one that starts them has ended.
        """
        return self._launcher.ask(Executed()) if self._launcher is not None and self._opened is True else {}

    def _ready(self) -> Worker:
        if self._launcher is None:
            raise StepError("no process was started to launch others from")
        if self._opened is None:
            try:
                self._launcher.receive(self._open)
                self._opened = True
            except StepError as error:
                self._opened = error
        if isinstance(self._opened, StepError):
            raise self._opened
        return self._launcher


def _folder(where: Path, mesh: Mesh, fault: str) -> Path:
    """Return the folder of a mesh's results."""
    return where / f"{mesh.name}{f' with {fault}' if fault else ''}".replace(" ", "-")
