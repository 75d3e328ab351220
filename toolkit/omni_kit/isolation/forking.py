"""The fork server: `python -m omni_kit.isolation.forking CONTROL MODULE...` imports modules, and forks workers.

It computes nothing, so a fork inherits imported modules and nothing else: no threads, no random state, no graph. Where
the imports have started a thread or an accelerator, it starts fresh processes instead. CONTROL is the number of a
socket; when its other end closes, the server ends its workers and itself.

Each message is a JSON object with four file descriptors: stdin, stdout and stderr of the worker, and a pipe on which
the server writes the worker's process id as one line, and its exit code as another.
"""

import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from omni_kit.isolation.serving import serve

_LONGEST = 1 << 20  # bytes of a message
_HARMLESS = frozenset({"jemalloc_bg_thd"})  # a pool of memory that prepares for forks itself


def main() -> None:
    """Import the modules and fork workers until the control socket closes."""
    control = socket.socket(fileno=int(sys.argv[1]))
    gc.disable()
    for module in sys.argv[2:]:
        with suppress(Exception, SystemExit):  # the worker that needs it reports the error
            importlib.import_module(module)
    gc.freeze()
    job = _next_job(control)
    if job is not None:  # this is the fork; nothing of the server is left on its stack
        os._exit(_exit_code(job))


def _next_job(control: socket.socket) -> Callable[[], None] | None:
    """Fork for each message; return the worker's job in each fork, and None in the server when it has to end."""
    wake, woken = os.pipe()
    os.set_blocking(woken, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    statuses: dict[int, int] = {}
    while True:
        ready, _, _ = select.select([control.fileno(), wake], [], [])
        if wake in ready:
            os.read(wake, 4096)
            _report_ended(statuses)
        if control.fileno() not in ready:
            continue
        message, files, _, _ = socket.recv_fds(control, _LONGEST, 4)
        if not message:
            _end_all(statuses)
            return None
        request = json.loads(message)
        forks = _may_fork()
        pid = os.fork() if forks else _spawned(request, files)
        if not pid:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            control.close()
            for file in (wake, woken, *statuses.values(), files[3]):
                os.close(file)
            return lambda: _work(request, files[:3])
        for file in files[:3]:
            os.close(file)
        statuses[pid] = files[3]
        _tell(files[3], pid)


def _may_fork() -> bool:
    names = []
    for task in os.listdir("/proc/self/task"):
        with open(f"/proc/self/task/{task}/comm", encoding="utf-8") as file:
            names.append(file.read().strip())
    if sum(name not in _HARMLESS for name in names) > 1:
        return False
    torch: Any = sys.modules.get("torch")
    return torch is None or not torch.cuda.is_initialized()


def _spawned(request: dict[str, Any], files: Sequence[int]) -> int:
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "omni_kit.isolation.serving", *_arguments(request)],
        stdin=files[0], stdout=files[1], stderr=files[2], env=request["environment"], cwd=request["directory"],
        start_new_session=True,
    )  # fmt: skip
    process.returncode = 0  # `_report_ended` waits for it
    return process.pid


def _arguments(request: dict[str, Any]) -> list[str]:
    return [request["service"], request["name"], *request["closed"]]


def _work(request: dict[str, Any], files: Sequence[int]) -> None:
    """Become a process like a fresh one, and serve."""
    os.setsid()  # so that whatever it starts ends with it
    for number, file in enumerate(files):
        os.dup2(file, number)
    for file in files:
        os.close(file)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["directory"])
    tempfile.tempdir = None
    sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
    sys.argv = ["omni_kit.isolation.serving", *_arguments(request)]
    if (torch := sys.modules.get("torch")) is not None:
        torch.set_num_threads(int(request["environment"]["OMP_NUM_THREADS"]))
        torch.default_generator.seed()  # a fresh process begins with a random one
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed()  # Python draws its own again in every fork
    serve(request["service"], request["name"], request["closed"])


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


def _report_ended(statuses: dict[int, int]) -> None:
    for pid in list(statuses):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            file = statuses.pop(pid)
            _tell(file, os.waitstatus_to_exitcode(status))
            os.close(file)


def _tell(file: int, number: int) -> None:
    with suppress(BrokenPipeError):
        os.write(file, f"{number}\n".encode())


def _end_all(statuses: dict[int, int]) -> None:
    for pid in statuses:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)


if __name__ == "__main__":
    main()
