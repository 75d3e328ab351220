"""Run a function once in a process of its own: a JSON value in, a JSON value out."""

import json
import tempfile
from collections import deque
from collections.abc import Generator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omni_kit.isolation.confinement import Confinement
from omni_kit.isolation.limits import Limits
from omni_kit.isolation.servers import Start, start_server
from omni_kit.isolation.worker import StepError, Worker, cores, environment

CALLING = "omni_kit.isolation.serving:calling"
"""The service that calls the function that is its argument."""

_LOGGED = "; its stacks are in "  # a log that is removed


def run_worker(
    function: str,
    request: Any,
    *,
    timeout: float,
    modules: Sequence[str] = (),
    beyond: Sequence[str] = (),
    path: Sequence[Path] = (),
    confined: bool = True,
    writes: bool = True,
    limits: Limits | None = None,
    threads: int | None = 1,
) -> Any:
    """Return a function's result for a request, from a process that ends with all its descendants.

    Args:
        function: "package.module:function", which takes and returns a JSON value.
        timeout: in seconds, imports included.
        modules: what the function imports in any case: the process is a fork of one that has, where that is possible.
        beyond: what else it imports in any case: it is then a fork of a process that has imported both.
        path: directories that come first where it imports from.
        confined: it runs code of an integration, which must not change omni-kit's own state and code.
        writes: False lets one that is confined write nothing but its own temporary files.
        limits: what it may use; without, one that is confined gets those of the machine.
        threads: see `Worker`.

    Raises:
        StepError: the function raised, the time is up, or the process ended.
    """
    (result,) = run_workers(
        function, [request], timeout=timeout, modules=modules, beyond=beyond, path=path, confined=confined,
        writes=writes, limits=limits, threads=threads,
    )  # fmt: skip
    if isinstance(result, StepError):
        raise result
    return result


def run_workers(
    function: str,
    requests: Sequence[Any],
    *,
    timeout: float,
    modules: Sequence[str] = (),
    beyond: Sequence[str] = (),
    path: Sequence[Path] = (),
    confined: bool = True,
    writes: bool = True,
    limits: Limits | None = None,
    threads: int | None = 1,
) -> Generator[Any, None, None]:
    """Yield what `run_worker` returns or raises for each request, in order; as many run at a time as there are cores.

    Args:
        function, modules, beyond, path, confined, writes, limits, threads: see `run_worker`.
        timeout: in seconds, for each request.
    """
    confinement = Confinement.of_candidate(writes=writes) if confined else None
    with ExitStack() as stack:
        logs = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        running: deque[tuple[Worker, Call]] = deque()
        for number, request in enumerate(requests):
            if len(running) == cores():
                yield _result(*running.popleft())
            worker = Worker(
                "worker", logs / str(number), timeout=timeout, threads=threads,
                confinement=confinement, limits=limits, service=CALLING, argument=function,
                modules=modules, beyond=beyond, path=path,
            )  # fmt: skip
            stack.callback(worker.close, at_once=True)
            call = Call(request)
            worker.send(call)
            running.append((worker, call))
        for each in running:
            yield _result(*each)


def prepare(modules: Sequence[str], path: Sequence[Path] = (), beyond: Sequence[str] = ()) -> None:
    """Begin to import modules, so that `run_workers` with the same ones and path finds them imported."""
    start_server(Start((), environment(CALLING, path, 1), "", tuple(modules), tuple(beyond)))


@dataclass(frozen=True)
class Call:
    """A request to a worker of the service `CALLING`: one JSON value."""

    value: Any

    @classmethod
    def title(cls) -> str:
        """Return its name."""
        return "call"

    def as_line(self) -> str:
        """Return the value as JSON."""
        return json.dumps(self.value)

    def take(self, side: Any) -> Any:
        """Return nothing: the service calls the function."""


def _result(worker: Worker, call: Call) -> Any:
    try:
        return worker.receive(call)
    except StepError as error:
        return StepError(str(error).partition(_LOGGED)[0], blames_candidate=error.blames_candidate)
    finally:
        worker.close(at_once=True)
