"""The fork server: it imports modules, and forks processes and servers that import more.

It computes nothing, so a fork inherits imported modules and nothing else: no threads, no random state, no graph. Where
the imports have started a thread or an accelerator, or there are none, the fork executes a program instead.

Each message is the length of a JSON object, which follows, with five file descriptors: stdin, stdout and stderr of the
process, and the leash and the status of its keeper. One with `modules` begins another server, which imports these too,
and has that server's socket alone.
"""

import gc
import importlib
import json
import os
import select
import socket
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from omni_kit.isolation.limits import Limits, Watch
from omni_kit.isolation.supervisor import (
    adopt_orphans,
    children,
    end_descendants,
    forget_children,
    keep,
    reap,
    wake_at_end_of_child,
)

LENGTH = 8  # bytes of a message's length
_HARMLESS = frozenset({"jemalloc_bg_thd"})  # a pool of memory that prepares for forks itself
_NOT_EXECUTABLE = 126


def main(number: int, modules: Sequence[str]) -> None:
    """Import modules and fork processes until the control socket closes.

    Args:
        number: the file descriptor of the socket.
    """
    gc.disable()
    job: Callable[[], None] | _Server | None = _Server(number, modules)
    while isinstance(job, _Server):
        for module in job.modules:
            with suppress(Exception, SystemExit):  # the worker that needs it reports the error
                importlib.import_module(module)
        gc.freeze()
        job = _next_job(socket.socket(fileno=job.number), bool(job.modules))
    # This is a fork, and nothing of the server is left on its stack; or the server itself, at its end.
    os._exit(_exit_code(job) if job is not None else 0)


class _Server(NamedTuple):
    number: int
    modules: Sequence[str]


def _next_job(control: socket.socket, imported: bool) -> Callable[[], None] | _Server | None:
    """Fork for each message; return what each fork does, and None in the server when it has to end."""
    adopt_orphans()  # those of a keeper or of a server that was killed
    wake = wake_at_end_of_child()
    keepers: set[int] = set()
    servers: set[int] = set()
    while True:
        ready, _, _ = select.select([control.fileno(), wake[0]], [], [])
        if wake[0] in ready:
            os.read(wake[0], 4096)
            ended = reap()
            keepers -= ended.keys()
            killed = {pid for pid, code in ended.items() if code}
            if killed & servers:
                keepers |= children()  # processes that a killed server started continue
            elif killed:
                end_descendants(besides=keepers)
            servers -= ended.keys()
        if control.fileno() not in ready:
            continue
        message, files = _received(control)
        if not message:
            return None
        request = json.loads(message)
        serves = imported and may_fork()
        pid = os.fork()
        if not pid:
            forget_children(*wake)
            control.close()
            if "modules" in request:
                return _Server(files[0], request["modules"])
            limits = request["limits"]
            watch = Watch(Limits(**limits), Path(request["directory"]), files[2]) if limits is not None else None
            keep(files[3], files[4], files[:3], watch)
            return lambda: _work(request, files[:3], serves)
        keepers.add(pid)
        if "modules" in request:
            servers.add(pid)
        for file in files:
            os.close(file)


def _received(control: socket.socket) -> tuple[bytes, list[int]]:
    head, files, _, _ = socket.recv_fds(control, LENGTH, 5)
    left = int(head or b"0")
    message = b""
    while left > len(message) and (more := control.recv(left - len(message))):
        message += more
    return message, files


def may_fork() -> bool:
    """Return whether imports have started neither threads nor an accelerator here, which a fork would lack."""
    names = []
    for task in os.listdir("/proc/self/task"):
        with open(f"/proc/self/task/{task}/comm", encoding="utf-8") as file:
            names.append(file.read().strip())
    if sum(name not in _HARMLESS for name in names) > 1:
        return False
    torch: Any = sys.modules.get("torch")
    return torch is None or not torch.cuda.is_initialized()


def _work(request: dict[str, Any], files: Sequence[int], serves: bool) -> None:
    """Become a process like a fresh one and serve, or execute the program."""
    for number, file in enumerate(files):
        os.dup2(file, number)
    for file in files:
        os.close(file)
    os.chdir(request["directory"])
    environment = request["environment"]
    if not serves:
        _execute(request["program"], environment)
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None
    sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
    if (torch := sys.modules.get("torch")) is not None:
        torch.set_num_threads(int(environment["OMP_NUM_THREADS"]))
        torch.default_generator.seed()  # a fresh process begins with a random one
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed()  # Python draws its own again in every fork
    from omni_kit.isolation.serving import serve

    serve(*request["arguments"])


def _execute(program: Sequence[str], environment: dict[str, str]) -> None:
    try:
        os.execvpe(program[0], [*program], environment)
    except OSError as error:
        print(f"cannot run {program[0]}: {error.strerror}", file=sys.stderr)
        raise SystemExit(_NOT_EXECUTABLE) from error


def _exit_code(job: Callable[[], None]) -> int:
    """Run the fork's job; return what a fresh process would end with."""
    code: object = 0
    try:
        job()
    except SystemExit as error:
        code = error.code
        if not (code is None or isinstance(code, int)):
            print(code, file=sys.stderr)
            code = 1
    except BaseException:
        traceback.print_exc()
        code = 1
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    return int(code) & 0xFF if isinstance(code, int) else 0
