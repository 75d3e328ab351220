"""Processes that time choices: one with the integration's model, one with upstream's; restarted if they end."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from omni_kit.isolation.confinement import Confinement
from omni_kit.isolation.worker import StepError, Worker
from omni_kit.kernels.steps import Choices, Feed, Make, Prove, Scale, Time
from omni_kit.kernels.timing import Broken, Sample
from omni_kit.parity.processes.step import R, Step
from omni_kit.parity.processes.steps import Open
from omni_kit.parity.processes.workers import SERVICE, preloaded
from omni_kit.targets.sides import Bindable, Candidate, KernelChoice

_UPSTREAM, _CANDIDATE = "reference", "candidate"
_WARM = 2
_UNUSABLE = ("CUDA error", "AcceleratorError")  # a device that says so says it from then on
UPSTREAM: Mapping[str, str] = MappingProxyType({"": "upstream"})


class Room:
    """Both processes of a search. Use as a context manager.

    A kernel that raises may leave its device unusable, and one that crashes ends its process: both cost the process
    alone, and the next question gets a new one with the same model.

    Args:
        candidate: the integration.
        where: a directory for configs and logs.
        device: "cpu" or "cuda".
        shape: sequences and tokens of each.
        steps: of one sample.
        timeout: seconds that one question may take.
    """

    def __init__(
        self,
        candidate: Candidate,
        where: Path,
        *,
        device: str,
        dtype: str,
        shape: tuple[int, int],
        steps: int,
        timeout: float,
    ) -> None:
        self.config_dir = where / "model"
        self.device_name = ""
        self.place: tuple[str, ...] = ()
        self._candidate, self._where, self._device, self._dtype = candidate, where, device, dtype
        self._shape, self._steps, self._timeout = shape, steps, timeout
        self._workers: dict[str, Worker] = {}
        self._opening: dict[str, Open] = {}
        self._made: set[str] = set()
        self._recompiled: dict[frozenset[tuple[str, str]], int] = {}

    def __enter__(self) -> "Room":
        for name in (_UPSTREAM, _CANDIDATE):
            self._worker(name)  # both import while the first is asked
        return self

    def __exit__(self, *error: object) -> None:
        for worker in self._workers.values():
            worker.close(at_once=error[0] is not None)

    def scale(self, source: str, size: int) -> int:
        """Write the model's config, and return its number of parameters.

        Raises:
            StepError: upstream makes no such model.
        """
        return self._plainly(_UPSTREAM, Scale(source, size, self.config_dir))

    def choices(self) -> list[KernelChoice]:
        """Return the model's kernel choices; afterwards, `place` is the settings' path in a training file.

        Raises:
            StepError: the integration cannot be built.
        """
        said = self._plainly(_CANDIDATE, Choices(self.config_dir))
        self.place = tuple(said["place"])
        return [
            KernelChoice(**{**one, "kernels": tuple(Bindable(**kernel) for kernel in one["kernels"])})
            for one in said["choices"]
        ]

    def prove(self, setting: str, chosen: Mapping[str, str], longest: int, *, timed: bool) -> dict[str, Any]:
        """See `Prove`; with as many sequences as are trained, and at most `longest` tokens of them.

        Raises:
            StepError: the kernel raised, or ended its process.
        """
        sequences, length = self._shape
        inputs = self._inputs(max(2, min(length, longest // sequences)))
        return self._ask(_CANDIDATE, Prove(setting, chosen, inputs, timed))

    def sample(self, contender: Mapping[str, str]) -> Sample:
        """See `Bench.sample`; `UPSTREAM` is upstream's own step."""
        own = contender is UPSTREAM
        try:
            step = Time(self._inputs(self._shape[1]), _WARM, self._steps, {} if own else contender)
            said = self._ask(_UPSTREAM if own else _CANDIDATE, step)
        except StepError as error:
            raise Broken(str(error)) from error
        if "error" in said:
            raise Broken(said["error"])
        key = frozenset(contender.items())
        again = said["later"] + (said["first"] if key in self._recompiled else 0)
        self._recompiled[key] = self._recompiled.get(key, 0) + again
        return Sample(tuple(said["ms"]), float(said["gb"]))

    def recompiled(self, contender: Mapping[str, str]) -> int:
        """Return how many graphs were compiled for a choice after its first step."""
        return self._recompiled.get(frozenset(contender.items()), 0)

    def _inputs(self, length: int) -> Path:
        """Return the file of what both sides are fed, of sequences of this length; upstream makes it once.

        Raises:
            StepError: it cannot.
        """
        file = self._where / f"inputs_{length}.safetensors"
        if not file.exists():
            self._ask(_UPSTREAM, Feed(self._shape[0], length, file))
        return file

    def _ask(self, name: str, step: Step[R]) -> R:
        """Ask a process that has made its model.

        Raises:
            StepError: as `Worker.ask`.
        """
        self._worker(name)
        try:
            if name not in self._made:
                self.device_name = self._plainly(name, Make(self.config_dir, self._dtype))
                self._made.add(name)
            return self._plainly(name, step)
        except StepError as error:
            if any(word in str(error) for word in _UNUSABLE) or not self._workers[name].alive:
                self._end(name)
            raise

    def _end(self, name: str) -> None:
        if name in self._workers:
            self._workers.pop(name).close(at_once=True)
        self._opening.pop(name, None)
        self._made.discard(name)

    def _worker(self, name: str) -> Worker:
        if name in self._workers and self._workers[name].alive:
            return self._workers[name]
        self._end(name)
        candidate, own = self._candidate, name == _CANDIDATE
        worker = self._workers[name] = Worker(
            name, self._where, timeout=self._timeout, confinement=Confinement.of_candidate() if own else None,
            service=SERVICE, modules=preloaded(candidate.reference, candidate.shared),
            beyond=candidate.preloaded if own else (),
        )  # fmt: skip
        builder = candidate.builder if own else candidate.reference
        options = candidate.options if own else candidate.told
        forbidden = candidate.independent_of if own else candidate.forbidden
        self._opening[name] = Open(builder, {**options, "device": self._device}, "", list(forbidden))
        worker.send(self._opening[name])
        return worker

    def _plainly(self, name: str, step: Step[R]) -> R:
        """Ask a process that has imported its side."""
        worker = self._worker(name)
        if name in self._opening:
            worker.receive(self._opening.pop(name))
        return worker.ask(step)
