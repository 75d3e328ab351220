"""The fork servers of this process: one for each set of modules, ended with it."""

import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import omni_kit
from omni_kit.isolation.forking import LENGTH, main, may_fork
from omni_kit.isolation.limits import Limits

ROOT = Path(omni_kit.__file__).resolve().parents[1]
_MOST = 7  # servers at a time; each keeps a few hundred MB, less where it is the fork of another
_SHARED = "torch"  # takes half of the time of most servers' imports
_STARTING = 2.0  # seconds that a server has to start a process
# Variables that differ from call to call, or that torch sets when its compiler is first imported, and that no import
# reads.
_VOLATILE = frozenset({
    "TMPDIR", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "PYTEST_CURRENT_TEST", "COLUMNS", "LINES", "PWD", "OLDPWD",
    "SHLVL", "_",
})  # fmt: skip
_servers: dict[tuple[object, ...], "_Server"] = {}
_lock = threading.Lock()


@dataclass(frozen=True)
class Start:
    """Recipe for starting a process.

    Attributes:
        program: what it executes, with its arguments.
        modules: what it imports in any case, so that it can be a fork of a process that has; empty for a fresh process.
            Servers of those that begin with torch are forks of one that has imported it alone.
        beyond: what else it imports in any case; its server is a fork of the one that has imported `modules`.
        arguments: what such a fork serves with; see `serving.serve`.
        limits: what it and its descendants may use, files in `directory` included.
    """

    program: Sequence[str]
    environment: Mapping[str, str]
    directory: str
    modules: tuple[str, ...] = ()
    beyond: tuple[str, ...] = ()
    arguments: Sequence[str] = ()
    limits: Limits | None = None


class Process:
    """A process that was started and leads a session of its own; its keeper ends it with all its descendants.

    Attributes:
        exceeded: the limit for which the keeper has ended it, as the predicate of a sentence; empty for none.
    """

    def __init__(self, status: int, leash: int) -> None:
        self._status = status
        self._leash = leash
        self._said = b""
        self._ended: int | None = None
        self.exceeded = ""

    def __del__(self) -> None:
        for file in (self._leash, *([] if self._ended is not None else [self._status])):
            with suppress(OSError):
                os.close(file)

    @property
    def pid(self) -> int:
        """Return its number; waits a few seconds until it runs.

        Raises:
            ProcessLookupError: it has not been started yet, or never will be.
        """
        while b"\n" not in self._said and self._ended is None and self._read(_STARTING):
            pass
        if b"\n" not in self._said:
            raise ProcessLookupError("the process was not started")
        return int(self._said.partition(b"\n")[0])

    def poll(self) -> int | None:
        """Return its exit code, negative for a signal, once it and its descendants are gone; None while it runs."""
        while self._ended is None and self._read(0.0):
            pass
        return self._ended

    def wait(self, timeout: float | None = None) -> int:
        """Return its exit code once it has ended.

        Raises:
            TimeoutError: it still runs.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while self._ended is None:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not self._read(left):
                raise TimeoutError("the process still runs")
        return self._ended

    def end(self) -> None:
        """End it and all its descendants; one that its server has not started yet ends as soon as it is."""
        with suppress(BrokenPipeError):
            os.write(self._leash, b"\n")

    def _read(self, timeout: float | None) -> bool:
        ready, _, _ = select.select([self._status], [], [], timeout)
        if not ready:
            return False
        said = os.read(self._status, 1024)
        self._said += said
        if self._said.count(b"\n") == 2:
            code, _, exceeded = self._said.split(b"\n")[1].decode().partition(" ")
            self._ended, self.exceeded = int(code), exceeded
        elif not said:  # its keeper was killed
            with suppress(OSError, ValueError):
                os.killpg(int(self._said), signal.SIGKILL)
            self._ended = -signal.SIGKILL
        if self._ended is not None:
            os.close(self._status)
        return True


def can_fork() -> bool:
    """Return whether this system's libraries survive a fork and tell how many threads they have started."""
    return sys.platform == "linux" and Path("/proc/self/task").is_dir()


def start(how: Start, stdin: int, stdout: int, stderr: int) -> Process:
    """Start a process with these file descriptors, which the caller closes: a fork where that is possible."""
    status, theirs = os.pipe()
    leash, ours = os.pipe()
    message = {
        "program": [*how.program], "arguments": [*how.arguments],
        "environment": dict(how.environment), "directory": how.directory,
        "limits": asdict(how.limits) if how.limits is not None else None,
    }  # fmt: skip
    with _lock, suppress(BrokenPipeError, ConnectionResetError):  # the status pipe then says that the server died
        _server(how).send(json.dumps(message).encode(), [stdin, stdout, stderr, leash, theirs])
    os.close(theirs)
    os.close(leash)
    return Process(status, ours)


def start_server(how: Start) -> None:
    """Start the server that such a process will be a fork of, which takes seconds, and do not wait for it."""
    if how.modules and can_fork():
        with _lock:
            _server(how)


def fork_server(how: Start) -> None:
    """Make this process's fork the server that such a process will be a fork of: it imports only what is missing.

    To be called before anything but imports has happened here; no fork has more than one thread.
    """
    if how.modules and can_fork() and may_fork():
        with _lock:
            _server(how, lambda: _Server.here(how.modules))


def _server(how: Start, make: "Callable[[], _Server] | None" = None) -> "_Server":
    modules = how.modules if can_fork() else ()
    stable = tuple(sorted((name, value) for name, value in how.environment.items() if name not in _VOLATILE))
    key = (os.getpid(), modules, stable if modules else ())  # a fork of this process starts its own
    if modules[:1] == (_SHARED,) and make is None:
        root = _kept((os.getpid(), (_SHARED,), key[2]), lambda: _Server.fresh((_SHARED,), dict(stable)))
        make = partial(root.fork, modules)
    server = base = _kept(key, make or (lambda: _Server.fresh(modules, dict(stable))))
    if modules and how.beyond:
        server = _kept((*key, how.beyond), lambda: base.fork(how.beyond))
    for other in [one for one in _servers if one[0] == os.getpid()][:-_MOST]:
        _servers.pop(other).close()
    return server


def _kept(key: tuple[object, ...], make: Callable[[], "_Server"]) -> "_Server":
    """Return the server of a key, made if there is none; the one that was used last is the last."""
    server = _servers.pop(key, None)
    _servers[key] = server = server if server is not None and server.alive else make()
    return server


@atexit.register
def close_servers() -> None:
    """End every server of this process; processes that they started continue."""
    for key in [key for key in _servers if key[0] == os.getpid()]:
        _servers.pop(key).close()


class _Server:
    """A server at the other end of a socket; one that is a fork of another ends when the socket is closed."""

    def __init__(self, control: socket.socket, process: "subprocess.Popen[bytes] | None" = None) -> None:
        self._control = control
        self._process = process

    @classmethod
    def fresh(cls, modules: Sequence[str], environment: Mapping[str, str]) -> "_Server":
        """Start a server in a new interpreter."""
        control, theirs = socket.socketpair()
        if not modules:  # it imports nothing that is installed
            environment = {**environment, "PYTHONPATH": str(ROOT)}
        with theirs:
            process = subprocess.Popen(
                [sys.executable, *([] if modules else ["-S"]), "-P", "-"],
                stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                env=dict(environment), pass_fds=[theirs.fileno()], start_new_session=True,
            )  # fmt: skip
            assert process.stdin is not None
            # By stdin, so that the processes that are forked from it do not show in their command line what they are.
            with suppress(BrokenPipeError), process.stdin as program:
                program.write(f"from {main.__module__} import main\nmain({theirs.fileno()}, {[*modules]!r})\n".encode())
        return cls(control, process)

    @classmethod
    def here(cls, modules: Sequence[str]) -> "_Server":
        """Start a server as a fork of this process."""
        control, theirs = socket.socketpair()
        if not os.fork():
            control.close()
            main(theirs.fileno(), modules)
        theirs.close()
        return cls(control)

    def fork(self, modules: Sequence[str]) -> "_Server":
        """Start a server that has imported what this one has, and also these modules."""
        control, theirs = socket.socketpair()
        with theirs, suppress(BrokenPipeError, ConnectionResetError):
            self.send(json.dumps({"modules": [*modules]}).encode(), [theirs.fileno()])
        return _Server(control)

    @property
    def alive(self) -> bool:
        closed, _, _ = select.select([self._control], [], [], 0.0)  # it never says anything
        return not closed and (self._process is None or self._process.poll() is None)

    def send(self, message: bytes, files: Sequence[int]) -> None:
        socket.send_fds(self._control, [f"{len(message):{LENGTH}d}".encode()], files)
        self._control.sendall(message)

    def close(self) -> None:
        self._control.close()
        if self._process is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
