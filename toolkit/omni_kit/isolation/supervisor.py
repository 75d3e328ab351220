"""The keeper: a process that starts one other process and ends with it everything that it has started.

A daemon leaves its session and its parent. Linux then gives it to the nearest ancestor that adopts orphans, which is
the keeper: nothing below it can leave. Elsewhere the keeper ends the session of the process alone.
"""

import ctypes
import os
import select
import signal
import sys
import time
from collections.abc import Collection, Container, Mapping, Sequence
from contextlib import suppress

from omni_kit.isolation.limits import LOOK, Watch

_ADOPT_ORPHANS = 36  # prctl's PR_SET_CHILD_SUBREAPER
_LONGEST = 5.0  # seconds in which killed processes have to be gone
_LONGEST_OF_MANY = 60.0  # of those that exceed a limit: there may be thousands, which go on starting others
_PROCESSES = "/proc"
_RENEWED = 8  # looks after which numbers of processes may have been used again


def keep(leash: int, status: int, files: Sequence[int], watch: Watch | None = None) -> None:
    """Fork, and return in the new process alone; the process that called becomes its keeper and never returns.

    Args:
        leash: a pipe. When its other end is written to or closed, the keeper ends the process.
        status: a pipe. The keeper writes the process id as one line, and the exit code as another once the process
            and all its descendants are gone; with the limit that they exceeded, where the keeper ended them for that.
        files: what the new process alone has to hold.
        watch: what the process and its descendants may use.
    """
    os.setsid()
    adopt_orphans()
    wake = wake_at_end_of_child()
    pid = os.fork()
    if not pid:
        forget_children(*wake)
        os.setsid()
        os.close(leash)
        os.close(status)
        return
    for file in files:
        os.close(file)
    _tell(status, str(pid))
    if watch is not None:
        _run_first()
    codes: dict[int, int] = {}
    exceeded, descendants = "", Descendants()
    while pid not in codes and not exceeded:
        ready, _, _ = select.select([leash, wake[0]], [], [], LOOK if watch is not None else None)
        if leash in ready:
            break
        if wake[0] in ready:
            os.read(wake[0], 4096)
            codes |= reap()
        elif watch is not None:
            exceeded = watch.exceeded(descendants.now())
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    codes |= end_descendants(longest=_LONGEST_OF_MANY if exceeded else _LONGEST)
    _tell(status, f"{codes.get(pid, -signal.SIGKILL)} {exceeded}")
    os._exit(0)


def adopt_orphans() -> None:
    """Make this process the parent of all orphans among its descendants, where the system can."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_ADOPT_ORPHANS, 1, 0, 0, 0)


def wake_at_end_of_child() -> tuple[int, int]:
    """Return both ends of a pipe that can be read when a child has ended."""
    wake, woken = os.pipe()
    os.set_blocking(woken, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    return wake, woken


def forget_children(wake: int, woken: int) -> None:
    """Undo `wake_at_end_of_child` in a fork."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.close(wake)
    os.close(woken)


def reap() -> dict[int, int]:
    """Return process id -> exit code of the children that have ended."""
    found: dict[int, int] = {}
    with suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            found[ended[0]] = os.waitstatus_to_exitcode(ended[1])
    return found


def end_descendants(besides: Collection[int] = (), longest: float = _LONGEST) -> dict[int, int]:
    """Kill all descendants of this process, and return the exit codes of its children.

    They are stopped first: a stopped process starts no other one.

    Args:
        besides: children that continue, with their descendants.
        longest: seconds after which those that are left are given up.
    """
    codes = reap()
    deadline = time.monotonic() + longest
    stopped: set[int] = set()
    while _has_children() and time.monotonic() < deadline:
        alive = _descendants(besides)
        new = alive - stopped
        for pid in new or alive:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGSTOP if new else signal.SIGKILL)
        stopped |= new
        ended = reap()
        if not (alive or ended):  # one that has just ended may have left a child that was not seen
            break
        codes |= ended
        time.sleep(0 if new else 0.001)
    return codes


def _run_first() -> None:
    """Run before all others, so that thousands of processes do not keep this one from ending them; as root alone."""
    with suppress(OSError, AttributeError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))


def _has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def children() -> set[int]:
    """Return the children of this process that run; none if the system lists no processes."""
    return set(_running().get(os.getpid(), ()))


class Descendants:
    """The descendants of this process, for who looks several times a second.

    Other processes never become descendants, so most of the system's need not be read again.
    """

    def __init__(self) -> None:
        self._others: set[int] = set()
        self._looks = 0

    def now(self) -> set[int]:
        """Return the descendants that run; of those that begin or end meanwhile, some are found by the next look."""
        if self._looks % _RENEWED == 0:
            self._others.clear()
        self._looks += 1
        running = _running(self._others)
        found = _below(running, ())
        self._others.update(pid for one in running.values() for pid in one if pid not in found)
        return found


def _descendants(besides: Collection[int]) -> set[int]:
    """Return the descendants that run; none if the system lists no processes."""
    return _below(_running(), besides)


def _below(running: Mapping[int, Sequence[int]], besides: Collection[int]) -> set[int]:
    found: set[int] = set()
    todo = [pid for pid in running.get(os.getpid(), ()) if pid not in besides]
    while todo:
        pid = todo.pop()
        found.add(pid)
        todo += running.get(pid, ())
    return found


def _running(besides: Container[int] = ()) -> dict[int, list[int]]:
    """Return process -> its children that run, without those that are known."""
    found: dict[int, list[int]] = {}
    for name in filter(str.isdecimal, os.listdir(_PROCESSES) if os.path.isdir(_PROCESSES) else ()):
        if int(name) in besides:
            continue
        with suppress(OSError, ValueError), open(f"{_PROCESSES}/{name}/stat", "rb") as file:
            state, parent = file.read().rpartition(b")")[2].split()[:2]
            if state not in b"ZX":
                found.setdefault(int(parent), []).append(int(name))
    return found


def _tell(file: int, text: str) -> None:
    with suppress(BrokenPipeError):
        os.write(file, f"{text}\n".encode())
