"""The parent's end of a worker: start, send requests, limit their time, report errors in one line."""

import json
import os
import re
import secrets
import select
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, TypeVar

from omni_kit.isolation.confinement import RUNNER, Confinement
from omni_kit.isolation.failures import REQUESTED
from omni_kit.isolation.limits import Limits
from omni_kit.isolation.removing import remove
from omni_kit.isolation.servers import ROOT, Start, start
from omni_kit.termination import go_on

_LAST_WORDS = 5.0  # seconds that a process has to end by itself
_LONGEST_REPLY = 1 << 26  # bytes
_LAST_BYTES = 1 << 24  # of a log
_OWN = "OMNI_KIT_"

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class Request(Protocol[R_co]):
    """A request whose reply is of type R; its service knows how to read the line."""

    @classmethod
    def title(cls) -> str:
        """Return its name, for messages."""

    def as_line(self) -> str:
        """Return the request as one line."""

    def take(self, side: Any) -> R_co:
        """Return the reply, in the worker."""


class StepError(Exception):
    """A step that gave no result.

    Attributes:
        blames_candidate: the integration's own code raised, or ended its process by an exit; False where the reference
            did, where a signal ended a process, out of memory or not, and where one hung or lacks a package.
        blames_reference: upstream's own code is broken: it cannot be compared with.
        place: FILE:LINE of the integration's own code that it came from; empty if that is not known.
        reported: a level has already shown it.
    """

    def __init__(
        self, message: str, *, blames_candidate: bool = False, blames_reference: bool = False, place: str = ""
    ) -> None:
        super().__init__(message)
        self.place = place
        self.blames_candidate = blames_candidate
        self.blames_reference = blames_reference
        self.reported = False


class Worker:
    """One side in its own process. Use as a context manager: leaving it ends the process.

    Args:
        name: "reference", "candidate" or "ranks", for messages and the log's name.
        log_dir: where NAME.log is written.
        timeout: seconds that one step may take.
        threads: how many threads it may compute with; None shares the cores between two processes.
        confinement: what it cannot open or change, where the system can keep it from that.
        limits: what it and its descendants may use; without, one that is confined gets those of the machine.
        service: what replies to its requests; see `serving.serve`.
        argument: what the service is called with, instead of the name.
        modules: what it imports in any case, so that it can be the fork of a server that has imported them.
        beyond: what else it imports in any case: its server is then a fork of that one.
        path: directories that come first where it imports from.
    """

    def __init__(
        self,
        name: str,
        log_dir: Path,
        *,
        timeout: float = 300.0,
        threads: int | None = None,
        confinement: Confinement | None = None,
        limits: Limits | None = None,
        service: str,
        argument: str = "",
        modules: Sequence[str] = (),
        beyond: Sequence[str] = (),
        path: Sequence[Path] = (),
    ) -> None:
        self.name = name
        self.log = log_dir / f"{name}.log"
        self.timeout = timeout
        log_dir.mkdir(parents=True, exist_ok=True)
        self._log_file = self.log.open("ab")
        self._scratch = tempfile.mkdtemp()
        self._readable = confinement.reachable(write=False) if confinement is not None else [Path("/")]
        self._writable = confinement.reachable(write=True) if confinement is not None else [Path("/")]
        stdin, self._stdin = os.pipe()
        self._stdout, stdout = os.pipe()
        if limits is None and confinement is not None:
            limits = Limits.of_machine()
        arguments = [
            service, argument or name, json.dumps(asdict(confinement)) if confinement is not None else "",
            str(limits.shared) if limits is not None else "",
        ]  # fmt: skip
        # Compiled kernels are code: a process leaves none for later ones, and needs no directory that it cannot make.
        own = {"TMPDIR": self._scratch, "TRITON_CACHE_DIR": f"{self._scratch}/triton"}
        how = Start(
            program=[sys.executable, "-P", "-m", "omni_kit.isolation.serving", *arguments],
            environment={**environment(service, path, threads), **own},
            directory=self._scratch,
            modules=tuple(modules),
            beyond=tuple(beyond),
            arguments=arguments,
            limits=limits,
        )
        try:
            self._process = start(how, stdin, stdout, self._log_file.fileno())
        except BaseException:
            self._log_file.close()
            remove(self._scratch)
            raise
        finally:
            os.close(stdin)
            os.close(stdout)
        self._kills = killed_for_memory()
        self._unread = b""
        self._token = ""
        self._awaited: list[Request[Any]] = []

    def __enter__(self) -> "Worker":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close(at_once=kind is not None)

    def ask(self, step: Request[R]) -> R:
        """Take a step and return its result.

        Raises:
            StepError: the step raised, timed out, or the process ended.
        """
        self.send(step)
        return self.receive(step)

    def send(self, step: Request[Any]) -> None:
        """Ask without waiting for the reply; a reply that nobody took before is dropped.

        Raises:
            StepError: the process has ended.
        """
        go_on()
        while self._awaited:
            with suppress(StepError):
                self.receive(self._awaited[0])
        self._check_silent(step.title())
        self._token = secrets.token_hex(8)
        line = f"{self._token} {step.as_line()}\n"
        try:
            _write(self._stdin, line.encode())
        except OSError:  # it ended, or its stdin was closed
            raise self._died(step.title()) from None
        self._awaited.append(step)

    def receive(self, step: Request[R]) -> R:
        """Wait for the reply to the last request.

        Raises:
            StepError: as `ask`.
        """
        self._awaited.remove(step)
        reply = self._reply(step.title())
        if "error" in reply:
            blames = self.name != "reference" and reply["blames_candidate"]
            broken = self.name == "reference" and reply["blames_reference"]
            place = str(reply.get("place", ""))
            raise StepError(reply["error"], blames_candidate=blames, blames_reference=broken, place=place)
        result: R = reply["result"]
        return result

    def reaches(self, place: Path, *, write: bool = False) -> bool:
        """Return whether it can read, or also write, files below a directory.

        One that is confined may not reach a directory that was made after it started.
        """
        place = place.resolve()
        return any(place.is_relative_to(each) for each in (self._writable if write else self._readable))

    @property
    def alive(self) -> bool:
        """Return whether the process has not ended."""
        return self._process.poll() is None

    def close_stdin(self) -> None:
        """Tell the process that no more requests will come; it ends after the one it is at."""
        if self._stdin >= 0:
            os.close(self._stdin)
            self._stdin = -1

    def close(self, *, at_once: bool = False) -> None:
        """End the process and its descendants, and remove the files that they left in its directory.

        Args:
            at_once: does not wait for the step that it is at.
        """
        if self.alive and not at_once:
            self.close_stdin()
            with suppress(TimeoutError):
                self._process.wait(_LAST_WORDS)
        self._kill()
        self.close_stdin()
        if self._stdout >= 0:
            os.close(self._stdout)
            self._stdout = -1
        self._log_file.close()
        remove(self._scratch)

    def _kill(self) -> None:
        """End it and its descendants: no signal that they ignore, and none that stops them, keep them from that."""
        self._process.end()
        with suppress(TimeoutError):  # one that its server has not started yet finds its stdin closed
            self._process.wait(_LAST_WORDS)

    def _reply(self, step: str) -> dict[str, Any]:
        """Return the next line from the process.

        Raises:
            StepError: there is none, or it is none of ours: the process's own code has written there.
        """
        line = self._read_line(step)
        try:
            reply = json.loads(line)
        except (ValueError, RecursionError):
            reply = None
        if not isinstance(reply, dict) or reply.pop("token", "") != self._token:
            raise self._garbled(step)
        if not ("result" in reply or {"error", "blames_candidate"} <= reply.keys()):
            raise self._garbled(step)
        return reply

    def _check_silent(self, step: str) -> None:
        """Nothing was asked, so nothing may have been said: what waits here would be taken for the next answer."""
        ready, _, _ = select.select([self._stdout], [], [], 0)
        said = os.read(self._stdout, 65536) if ready else b""
        if self._unread or said:
            raise self._garbled(step)
        if ready:
            raise self._died(step)

    def _garbled(self, step: str) -> StepError:
        self._kill()
        message = f"the {self.name} process wrote to its result channel in '{step}', so its results are unreadable"
        return StepError(message, blames_candidate=self.name != "reference")

    def _read_line(self, step: str) -> bytes:
        deadline = time.monotonic() + self.timeout
        while b"\n" not in self._unread:
            ready, _, _ = select.select([self._stdout], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise self._hung(step)
            chunk = os.read(self._stdout, 65536)
            if not chunk:
                raise self._died(step)
            self._unread += chunk
            if len(self._unread) > _LONGEST_REPLY:
                raise self._garbled(step)
        line, _, self._unread = self._unread.partition(b"\n")
        return line

    def _hung(self, step: str) -> StepError:
        """Aborts the process, which writes its stacks to the log; ends it where it does not care."""
        with suppress(ProcessLookupError):
            os.kill(self._process.pid, signal.SIGABRT)
            os.kill(self._process.pid, signal.SIGCONT)  # it may have stopped itself
        with suppress(TimeoutError):
            self._process.wait(_LAST_WORDS)
        self._kill()
        message = (
            f"the {self.name} process did not finish '{step}' in {self.timeout:.0f} s; its stacks are in {self.log}"
        )
        return StepError(message)

    def _died(self, step: str) -> StepError:
        code = self._process.wait()
        if self._process.exceeded:
            message = f"the {self.name} process {self._process.exceeded} in '{step}'"
            return StepError(message, blames_candidate=self.name != "reference")
        lines = self._logged().splitlines()
        own = code >= 0 and any(line.startswith(REQUESTED) for line in lines)  # else it did not even start
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
        why = self._killer() if code == -signal.SIGKILL else ", because the code that it ran exited" if own else ""
        message = f"the {self.name} process {how} in '{step}'{why}{_last_words(lines)}"
        return StepError(message, blames_candidate=own and self.name != "reference")

    def _logged(self) -> str:
        """Return the end of the log."""
        with self.log.open("rb") as log:
            log.seek(max(0, self.log.stat().st_size - _LAST_BYTES))
            return log.read().decode(errors="replace")

    def _killer(self) -> str:
        """Return the cause of SIGKILL, as far as the kernel's count of out-of-memory kills shows it."""
        now = killed_for_memory()
        if now is None or self._kills is None:
            return ", as the kernel does when memory runs out"
        return ": memory ran out" if now > self._kills else ", not for lack of memory"


def killed_for_memory() -> int | None:
    """Return how many processes the kernel has killed because memory ran out; None if it does not say."""
    try:
        found = re.search(r"^oom_kill (\d+)$", Path("/proc/vmstat").read_text(encoding="ascii"), re.MULTILINE)
    except OSError:
        return None
    return int(found[1]) if found else None


def _last_words(lines: Sequence[str]) -> str:
    """Return the last line of a log that says something."""
    said = (line for line in reversed(lines) if not line.startswith((" ", REQUESTED)))
    last = next((line for line in said if any(map(str.isalnum, line))), "")
    return f": {last.strip()[:300]}" if last else ""


def _write(file: int, data: bytes) -> None:
    while data:
        data = data[os.write(file, data) :]


def environment(service: str, path: Sequence[Path], threads: int | None) -> dict[str, str]:
    """Return the variables of a worker: offline, quiet, with no more threads than cores.

    Without a runner's own, and without omni-kit's, by which an integration would know that it is compared.

    Args:
        service, path, threads: see `Worker`.
    """
    offline = dict.fromkeys(("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE"), "1")
    count = str(threads or max(1, cores() // 2))
    limits = {"OMP_NUM_THREADS": count, "MKL_NUM_THREADS": count, "OPENBLAS_NUM_THREADS": "1"}
    places = [*dict.fromkeys(map(str, [*path, ROOT, *_home(service)])), *filter(None, [os.environ.get("PYTHONPATH")])]
    repeatable = {"PYTHONHASHSEED": "0"}  # upstream iterates over sets: both sides must do it in the same order
    quiet = {"TOKENIZERS_PARALLELISM": "false", "HF_HUB_DISABLE_PROGRESS_BARS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    own = {name: value for name, value in os.environ.items() if not name.startswith((*RUNNER, _OWN))}
    return {**own, **offline, **limits, **quiet, **repeatable, "PYTHONPATH": os.pathsep.join(places)}


def _home(service: str) -> list[Path]:
    """Return the directory from which the package of a service is imported."""
    spec = find_spec(service.partition(":")[0].partition(".")[0])
    return [Path(spec.origin).resolve().parents[1]] if spec is not None and spec.origin else []


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
