"""Resource limits of a process and its descendants, private shared memory, and dropped privileges.

The keeper looks a few times a second. Not everything can be counted as a process's own, such as files that it has
removed and still writes to: so where the machine itself runs out of memory or disk the process ends, too.
"""

import ctypes
import os
import re
import resource
import sys
import tempfile
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

LOOK = 0.25
"""Seconds between two looks."""
_PROCESSES = Path("/proc")
_SHARED_MEMORY = Path("/dev/shm")
_FILES = 200_000  # more of them in a temporary directory are as bad as their bytes
_RESERVE = 1 << 30  # bytes
_LONGEST_LOG = 1 << 28  # bytes
_THREADS = 8
_MOST_THREADS = 1 << 14
_BLOCK = 512  # bytes of a block, as the system counts them
_DROP_BOUNDING, _CAPABILITIES_V3, _SETPCAP = 24, 0x20080522, 8
_OF_FILES = 0b11111  # capabilities: to own, read and write what belongs to other users
_NEW_MOUNTS, _NEW_IPC, _NEW_USER = 0x20000, 0x08000000, 0x10000000  # flags of unshare
_NO_SETUID, _NO_DEVICES, _PRIVATE, _RECURSIVE = 2, 4, 1 << 18, 1 << 14  # flags of mount


@dataclass(frozen=True)
class Limits:
    """Resources that a process and all its descendants may use together.

    Attributes:
        memory: bytes that are its own, those of shared memory included.
        processes: how many run at a time, and an eighth of how many threads.
        disk: bytes of files in its temporary directory.
    """

    memory: int
    processes: int = 1024
    disk: int = 1 << 36

    @classmethod
    def of_machine(cls) -> "Limits | None":
        """Return what leaves the machine usable: three quarters of the memory and half of the disk that are free now.

        None if the system does not say.
        """
        if sys.platform != "linux" or not (free := _available()):
            return None
        return cls(memory=free // 4 * 3, disk=_free(Path(tempfile.gettempdir())) // 2)

    @property
    def shared(self) -> int:
        """The bytes of files in shared memory."""
        return self.memory // 4


class Watch:
    """Compares the resource use of processes with their limits.

    Args:
        directory: their temporary directory.
        log: the file that they write to as stderr.
    """

    def __init__(self, limits: Limits, directory: Path, log: int) -> None:
        self._limits = limits
        self._log = os.dup(log)
        self._directory = directory
        self._memory, self._disk = (min(free // 8, _RESERVE) for free in (_available(), _free(directory)))

    def exceeded(self, processes: Collection[int]) -> str:
        """Return the exceeded limit, as the predicate of a sentence; empty if none is."""
        limits = self._limits
        if len(processes) > limits.processes:
            return f"started more than {limits.processes} processes"
        if sum(map(_threads, processes)) > limits.processes * _THREADS:
            return f"started more than {limits.processes * _THREADS} threads"
        if sum(map(_resident, processes)) > limits.memory and sum(map(_own, processes)) > limits.memory:
            return f"used more than {_gigabytes(limits.memory)} of memory"
        if self._written() > limits.disk:
            return f"wrote more than {_gigabytes(limits.disk)} of temporary files"
        if os.fstat(self._log).st_blocks * _BLOCK > _LONGEST_LOG:
            return f"wrote more than {_gigabytes(_LONGEST_LOG)} to stderr"
        if _available() < self._memory:
            return f"was stopped because less than {_gigabytes(self._memory)} of the machine's memory is free"
        if _free(self._directory) < self._disk:
            return f"was stopped because less than {_gigabytes(self._disk)} of the disk is free"
        return ""

    def _written(self) -> int:
        total = 0
        for number, size in enumerate(_sizes(self._directory)):
            total += size
            if total > self._limits.disk or number > _FILES:
                return self._limits.disk + 1
        return total


def own_shared_memory(size: int) -> bool:
    """Give this process, and all that it starts, an empty shared memory that goes with the last of them.

    To be called before another thread is there, and before rights are given up.

    Args:
        size: bytes that files there can have.

    Returns:
        False where the system refuses; then it shares everybody's.
    """
    if sys.platform != "linux" or not _SHARED_MEMORY.is_dir():
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    users, groups = os.getuid(), os.getgid()
    if libc.unshare(_NEW_MOUNTS | _NEW_IPC) and not _as_own_user(libc, users, groups):
        return False
    libc.mount(b"none", b"/", None, _PRIVATE | _RECURSIVE, None)  # what is mounted here is not seen elsewhere
    options = f"size={size},mode=1777".encode()
    return bool(libc.mount(b"tmpfs", bytes(_SHARED_MEMORY), b"tmpfs", _NO_SETUID | _NO_DEVICES, options) == 0)


def _as_own_user(libc: ctypes.CDLL, user: int, group: int) -> bool:
    """Let a user without privileges have mounts of their own; users and files keep their names."""
    if libc.unshare(_NEW_USER | _NEW_MOUNTS | _NEW_IPC):
        return False
    most = resource.getrlimit(resource.RLIMIT_NPROC)[1]
    most = _MOST_THREADS if most == resource.RLIM_INFINITY else min(most, _MOST_THREADS)
    resource.setrlimit(resource.RLIMIT_NPROC, (most, most))  # counts those of this namespace; root has no such limit
    own = _PROCESSES / "self"
    for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        with suppress(OSError):
            (own / name).write_text(text, encoding="ascii")
    return True


def drop_privileges() -> None:
    """Give up for good, also in what is executed, all capabilities of root but those about the files of others."""
    libc = ctypes.CDLL(None, use_errno=True)
    for capability in range(64):
        if not _OF_FILES >> capability & 1:
            libc.prctl(_DROP_BOUNDING, capability, 0, 0, 0)  # refused where there is none to drop
    head = (ctypes.c_uint32 * 2)(_CAPABILITIES_V3, 0)
    sets = (ctypes.c_uint32 * 6)()  # effective, permitted and inheritable; then the same of later capabilities
    if libc.capget(head, sets) == 0:
        libc.capset(head, (ctypes.c_uint32 * 6)(*(one & _OF_FILES for one in sets[:2])))


def _sizes(directory: Path) -> Iterator[int]:
    """Yield the bytes that each file takes on the disk, without following links."""
    left = [os.fspath(directory)]
    while left:
        with suppress(OSError):
            for entry in os.scandir(left.pop()):
                with suppress(OSError):
                    yield entry.stat(follow_symlinks=False).st_blocks * _BLOCK
                    if entry.is_dir(follow_symlinks=False):
                        left.append(entry.path)


def _available() -> int:
    return _field(_PROCESSES / "meminfo", "MemAvailable")


def _free(directory: Path) -> int:
    place = os.statvfs(directory)
    return place.f_bavail * place.f_frsize


def _resident(process: int) -> int:
    status = _PROCESSES / str(process) / "status"
    return _field(status, "RssAnon") + _field(status, "RssShmem")


def _threads(process: int) -> int:
    with suppress(OSError):
        return (_PROCESSES / str(process) / "task").stat().st_nlink - 2
    return 0


def _own(process: int) -> int:
    """Return its part of what it shares with its forks, and all that is its own: slower to find than `_resident`."""
    rollup = _PROCESSES / str(process) / "smaps_rollup"
    return _field(rollup, "Pss_Anon") + _field(rollup, "Pss_Shmem") if rollup.exists() else _resident(process)


def _field(file: Path, name: str) -> int:
    """Return a field of one of the system's tables in bytes; 0 if there is none."""
    with suppress(OSError):
        if found := re.search(
            rf"^{name}:\s+(\d+) kB$", file.read_text(encoding="ascii", errors="replace"), re.MULTILINE
        ):
            return int(found[1]) << 10
    return 0


def _gigabytes(size: int) -> str:
    return f"{size / 1e9:.1f} GB"
