"""A process that from now on cannot open what lies below a directory, nor look into processes that still can.

Linux' Landlock: an unprivileged process gives rights up for good, and what it starts has no more than it. Rights are
given to directories as they are now, so everything is allowed but the chain of directories that leads to the closed
one: what lies beside a link of the chain stays open, and what is made there later does not.
"""

import ctypes
import os
import stat
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

# linux/landlock.h and the table of system calls, which have one number on all architectures since 5.1.
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_RULE_PATH_BENEATH = 1
_VERSION = 1  # flag of the first call
_WRITE_FILE, _READ_FILE, _REFER, _TRUNCATE = 1 << 1, 1 << 2, 1 << 13, 1 << 14
_REFER_SINCE, _TRUNCATE_SINCE = 2, 3
_OF_FILES = _WRITE_FILE | _READ_FILE | _TRUNCATE
_NO_NEW_PRIVILEGES = 38  # prctl


class _Ruleset(ctypes.Structure):
    _fields_ = (("handled_access_fs", ctypes.c_uint64),)


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32))


def confine(closed: Path) -> bool:
    """Takes from this process, and from all that it starts, the right to read or write files below `closed`.

    To be called before another thread is there: a thread keeps what it has.

    Returns:
        False where the system cannot do it; then nothing has changed.
    """
    if not can_confine():
        return False
    rights = _rights(_version())
    ruleset = _call(_CREATE_RULESET, ctypes.byref(_Ruleset(rights)), ctypes.sizeof(_Ruleset), 0)
    if ruleset < 0:
        return False
    for place in beside(closed):
        _allow(ruleset, place, rights)
    done = _libc().prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0) == 0 and _call(_RESTRICT_SELF, ruleset, 0) == 0
    os.close(ruleset)
    return done


def can_confine() -> bool:
    """Whether this system can take rights from a process."""
    return sys.platform == "linux" and _version() > 0


def beside(closed: Path) -> list[Path]:
    """What is there now beside the directories that lead to `closed`, which must be an absolute path without links."""
    return [entry for outer, inner in _chain(closed) for entry in _entries(outer) if entry != inner]


def _chain(closed: Path) -> Iterator[tuple[Path, Path]]:
    """Each directory that leads to it, with the next one."""
    links = [*reversed(closed.parents), closed]
    return pairwise(links)


def _entries(directory: Path) -> list[Path]:
    try:
        return sorted(entry for entry in directory.iterdir() if not entry.is_symlink())
    except OSError:  # that cannot be listed, so nothing in it can be told apart
        return []


def _allow(ruleset: int, place: Path, rights: int) -> None:
    try:
        handle = os.open(place, os.O_PATH | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:  # it has gone
        return
    whole = stat.S_ISDIR(os.fstat(handle).st_mode)
    rule = _PathBeneath(rights if whole else rights & _OF_FILES, handle)
    _call(_ADD_RULE, ruleset, _RULE_PATH_BENEATH, ctypes.byref(rule), 0)
    os.close(handle)


def _rights(version: int) -> int:
    refer = _REFER if version >= _REFER_SINCE else 0
    return _READ_FILE | _WRITE_FILE | refer | (_TRUNCATE if version >= _TRUNCATE_SINCE else 0)


def _version() -> int:
    """Of what the kernel understands; not positive where it understands none of it."""
    return _call(_CREATE_RULESET, None, 0, _VERSION)


def _call(number: int, *arguments: object) -> int:
    return int(_libc().syscall(ctypes.c_long(number), *arguments))


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
