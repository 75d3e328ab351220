"""The fork servers of this process: one for each set of modules, ended with it."""

import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

_MOST = 4  # servers at a time; each keeps a few hundred MB
_LAST_WORDS = 2.0  # seconds that a server has to end by itself
# Variables that differ from call to call and that no import reads.
_VOLATILE = frozenset({"TMPDIR", "PYTEST_CURRENT_TEST", "COLUMNS", "LINES", "PWD", "OLDPWD", "SHLVL", "_"})
_servers: dict[tuple[object, ...], "_Server"] = {}


@dataclass(frozen=True)
class Start:
    """How a worker's process is started.

    Attributes:
        service: see `serving.serve`.
        closed: directories that it cannot open files in.
        modules: what it imports in any case, so that it can be a fork of a process that has; empty for a fresh process.
    """

    service: str
    name: str
    closed: Sequence[str]
    environment: Mapping[str, str]
    directory: str
    modules: tuple[str, ...] = ()


class Process(Protocol):
    """A process that was started; it leads a session, and a group, of its own."""

    @property
    def pid(self) -> int:
        """Return its number; waits a few seconds until it runs.

        Raises:
            ProcessLookupError: it has not been started yet, or never will be.
        """

    def poll(self) -> int | None:
        """Return its exit code, negative for a signal; None while it runs."""

    def wait(self, timeout: float | None = None) -> int:
        """Return its exit code once it has ended.

        Raises:
            subprocess.TimeoutExpired: it still runs.
        """


def can_fork() -> bool:
    """Return whether this system's libraries survive a fork and tell how many threads they have started."""
    return sys.platform == "linux" and Path("/proc/self/task").is_dir()


def start(how: Start, stdin: int, stdout: int, stderr: int) -> Process:
    """Start a worker with these file descriptors, which the caller closes: a fork where that is possible."""
    if how.modules and can_fork():
        return _server(how).fork(how, stdin, stdout, stderr)
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "omni_kit.isolation.serving", how.service, how.name, *how.closed],
        stdin=stdin, stdout=stdout, stderr=stderr, env=dict(how.environment), cwd=how.directory,
        start_new_session=True,
    )  # fmt: skip


def _server(how: Start) -> "_Server":
    stable = tuple(sorted((name, value) for name, value in how.environment.items() if name not in _VOLATILE))
    key = (os.getpid(), how.modules, stable)  # a fork of this process starts its own
    server = _servers.pop(key, None)
    if server is None or not server.alive:
        server = _Server(how.modules, dict(stable))
    _servers[key] = server  # the one that was used last is the last
    for other in [one for one, it in _servers.items() if one[0] == os.getpid() and not it.busy][:-1]:
        if len(_servers) > _MOST:
            _servers.pop(other).close()
    return server


@atexit.register
def close_servers() -> None:
    """End every server of this process, and every worker that still runs."""
    for key in [key for key in _servers if key[0] == os.getpid()]:
        _servers.pop(key).close()


class _Server:
    def __init__(self, modules: Sequence[str], environment: Mapping[str, str]) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        self._workers: list[_Forked] = []
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "omni_kit.isolation.forking", str(theirs.fileno()), *modules],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                env=dict(environment), pass_fds=[theirs.fileno()], start_new_session=True,
            )  # fmt: skip

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    @property
    def busy(self) -> bool:
        self._workers = [one for one in self._workers if one.poll() is None]
        return bool(self._workers)

    def fork(self, how: Start, stdin: int, stdout: int, stderr: int) -> "_Forked":
        ours, theirs = os.pipe()
        message = {
            "service": how.service, "name": how.name, "closed": [*how.closed],
            "environment": dict(how.environment), "directory": how.directory,
        }  # fmt: skip
        with suppress(BrokenPipeError, ConnectionResetError):  # the status pipe then says that it died
            socket.send_fds(self._control, [json.dumps(message).encode()], [stdin, stdout, stderr, theirs])
        os.close(theirs)
        worker = _Forked(ours)
        self._workers.append(worker)
        return worker

    def close(self) -> None:
        self._control.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_LAST_WORDS)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


class _Forked:
    """A worker, as the server's status pipe describes it: its process id on one line, its exit code on another."""

    def __init__(self, status: int) -> None:
        self._status = status
        self._said = b""
        self._ended: int | None = None

    def __del__(self) -> None:
        if self._ended is None:
            with suppress(OSError):
                os.close(self._status)

    @property
    def pid(self) -> int:
        while b"\n" not in self._said and self._ended is None and self._read(_LAST_WORDS):
            pass
        if b"\n" not in self._said:
            raise ProcessLookupError("the worker was not forked")
        return int(self._said.partition(b"\n")[0])

    def poll(self) -> int | None:
        while self._ended is None and self._read(0.0):
            pass
        return self._ended

    def wait(self, timeout: float | None = None) -> int:
        deadline = None if timeout is None else time.monotonic() + timeout
        while self._ended is None:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not self._read(left):
                raise subprocess.TimeoutExpired("worker", timeout or 0.0)
        return self._ended

    def _read(self, timeout: float | None) -> bool:
        ready, _, _ = select.select([self._status], [], [], timeout)
        if not ready:
            return False
        said = os.read(self._status, 64)
        self._said += said
        if self._said.count(b"\n") == 2:
            self._ended = int(self._said.split(b"\n")[1])
        elif not said:  # the server died, and cannot say how its worker ends
            with suppress(OSError, ValueError):
                os.killpg(int(self._said), signal.SIGKILL)
            self._ended = -signal.SIGKILL
        if self._ended is not None:
            os.close(self._status)
        return True
