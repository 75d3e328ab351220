"""Files of upstream's process for both sides: the candidate's process reads them and changes none."""

from pathlib import Path
from typing import TypeVar

from omni_kit.isolation.failures import refuses_device
from omni_kit.isolation.worker import Request, StepError, Worker

_R = TypeVar("_R")


class Shared:
    """Files of both sides, as upstream's process left them."""

    def __init__(self) -> None:
        self._states: dict[Path, tuple[int, ...]] = {}

    def add(self, *places: Path) -> None:
        """Remember files, and all files of directories, as they are now."""
        for place in places:
            found = place.rglob("*") if place.is_dir() else [place]
            self._states |= {file: _state(file) for file in found if file.is_file()}

    def check(self) -> None:
        """Compare the files with what they were.

        Raises:
            StepError: one has changed, if only for a while.
        """
        for file, state in self._states.items():
            if not file.is_file() or _state(file) != state:
                message = f"the candidate's process changed {file.name}, which both sides are compared on"
                raise StepError(message, blames_candidate=True)


class Watched:
    """The candidate's process; after each reply, and before each request, the shared files are as they were.

    An integration that refuses the device of the comparison in words has not failed.
    """

    def __init__(self, worker: "Worker | Watched", shared: Shared, device: str) -> None:
        self._worker = worker
        self._shared = shared
        self._device = device

    def ask(self, step: Request[_R]) -> _R:
        """See `Worker.ask`."""
        self.send(step)
        return self.receive(step)

    def send(self, step: Request[object]) -> None:
        """See `Worker.send`."""
        self._shared.check()
        self._worker.send(step)

    def receive(self, step: Request[_R]) -> _R:
        """See `Worker.receive`."""
        try:
            result = self._worker.receive(step)
        except StepError as error:
            error.blames_candidate &= not refuses_device(str(error), self._device)
            raise
        self._shared.check()
        return result


def _state(file: Path) -> tuple[int, ...]:
    """Return the system alone sets the time of the last change; every write, and every other file of that name, moves
    it.
    """
    found = file.stat()
    return found.st_dev, found.st_ino, found.st_size, found.st_ctime_ns
