"""The two processes of a comparison, and the one that launches several."""

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from omni_kit.isolation.confinement import Confinement
from omni_kit.isolation.limits import Limits
from omni_kit.isolation.servers import Start, start_server
from omni_kit.isolation.worker import Worker, environment
from omni_kit.targets.sides import TRANSFORMERS, Candidate

LAUNCHER = "ranks"
GRACE = 60.0  # seconds that a launcher has to say which of its processes hung
SERVICE = "omni_kit.parity.processes.service:service"
_OF_CANDIDATE = {"candidate", LAUNCHER}
_STEPS = ("omni_kit.parity.processes.side", "omni_kit.parity.processes.steps")


def preloaded(reference: str, shared: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the modules that both sides of a comparison with this upstream import in any case.

    They never include the target framework, so that the reference's process never has it.

    Args:
        reference: "module:Class" of upstream's side.
        shared: what else the two of one candidate import.
    """
    return ("torch", *_STEPS, *shared, reference.partition(":")[0])


def begin(candidate: Candidate) -> None:
    """Begin to import what the two sides of a comparison import in any case."""
    modules, beyond = preloaded(candidate.reference, candidate.shared), tuple(candidate.preloaded)
    start_server(Start((), environment(SERVICE, (), None), "", modules, beyond))


class Sides:
    """The two processes of a comparison, for one run or for several in a row.

    Sharing them saves the imports, some six seconds a run. A plugin that comes a second time gets a fresh candidate
    process, because its modules are already imported in the old one. Use as a context manager.

    Attributes:
        log_dir: where the logs are written; a directory that both sides reach.
        closed: a directory for what the candidate must not see; only the reference's process can open files there.

    Args:
        path: directories that come first where the processes import from.
    """

    def __init__(self, log_dir: Path, *, timeout: float = 300.0, path: Sequence[Path] = ()) -> None:
        self.log_dir = log_dir
        self._path = path
        self.log_dir.mkdir(parents=True, exist_ok=True)
        self._timeout = timeout
        self._workers: dict[str, Worker] = {}
        self._seen: set[Path] = set()
        self._modules = preloaded(TRANSFORMERS)
        self._frameworks: Sequence[str] = ()
        self.closed = Path(tempfile.mkdtemp()).resolve()

    def __enter__(self) -> "Sides":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for worker in self._workers.values():
            worker.close(at_once=kind is not None)
        shutil.rmtree(self.closed, ignore_errors=True)

    def workers(self, candidate: Candidate, place: Path) -> tuple[Worker, Worker]:
        """Return the reference's and the candidate's process; what they import in any case is shared if they are not
        running.

        Args:
            place: where the candidate's files are put.
        """
        path = candidate.path
        self._modules = preloaded(candidate.reference, candidate.shared)
        self._frameworks = candidate.preloaded
        running = [self._workers[name] for name in _OF_CANDIDATE & self._workers.keys()]
        blind = not all(worker.reaches(path) and worker.reaches(place, write=True) for worker in running)
        if blind or (candidate.editable and path in self._seen):
            for worker in running:
                worker.close()
            self._seen.clear()
        self._seen.add(path)
        return self.worker("reference"), self.worker("candidate")

    def worker(self, name: str) -> Worker:
        """Return the process of a side; started if there is none yet, and again if it has ended."""
        if name not in self._workers or not self._workers[name].alive:
            own = name in _OF_CANDIDATE
            self._workers[name] = Worker(
                name, self.log_dir, timeout=self._timeout, limits=Limits.of_machine(), service=SERVICE,
                confinement=Confinement.of_candidate(self.closed) if own else None,
                modules=self._modules, beyond=self._frameworks if own else (), path=self._path,
            )  # fmt: skip
        return self._workers[name]

    def launcher(self) -> Worker:
        """Return the process from which those of a launch are forked: it has one thread, because threads do not
        fork.
        """
        if LAUNCHER not in self._workers or not self._workers[LAUNCHER].alive:
            self._workers[LAUNCHER] = Worker(
                LAUNCHER, self.log_dir, timeout=self._timeout + GRACE, threads=1,
                confinement=Confinement.of_candidate(self.closed), service=SERVICE, modules=self._modules,
                beyond=self._frameworks, path=self._path,
            )  # fmt: skip
        return self._workers[LAUNCHER]
