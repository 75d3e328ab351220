"""Confinement of a process: paths that it cannot open or change, and processes that it cannot inspect.

Linux' Landlock: an unprivileged process gives rights up for good, and what it starts has no more than it. Rights are
given to directories as they are now, so everything is allowed but the chain of directories that leads to a closed
one: what lies next to a link of the chain stays open, and what is made there later does not.
"""

import ctypes
import importlib.util
import os
import site
import stat
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import omni_kit
from omni_kit.authenticated_cache import own_key
from omni_kit.files import cache_directory, config_directory, is_file

# linux/landlock.h and the table of system calls, which have one number on all architectures since 5.1.
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_RULE_PATH_BENEATH = 1
_VERSION = 1  # flag of the first call
_WRITE_FILE, _READ_FILE, _REFER, _TRUNCATE = 1 << 1, 1 << 2, 1 << 13, 1 << 14
_REMOVE_DIR, _REMOVE_FILE, _MAKE_CHAR, _MAKE_SOCK, _MAKE_FIFO, _MAKE_BLOCK, _MAKE_SYM = (
    1 << bit for bit in (4, 5, 6, 9, 10, 11, 12)
)
_MAKE = 1 << 7 | 1 << 8  # directories and empty files: they change nothing that is there
_REPLACE = _REMOVE_DIR | _REMOVE_FILE | _MAKE_CHAR | _MAKE_SOCK | _MAKE_FIFO | _MAKE_BLOCK | _MAKE_SYM
_SCOPE_SIGNALS = 1 << 1
_REFER_SINCE, _TRUNCATE_SINCE, _SCOPES_SINCE = 2, 3, 6
_OF_FILES = _WRITE_FILE | _READ_FILE | _TRUNCATE
_NO_NEW_PRIVILEGES = 38  # prctl
_DEVICES = Path("/dev")
RUNNER = ("GITHUB_", "ACTIONS_", "RUNNER_")
"""Names of the variables in which a runner of jobs passes tokens, and files that decide what later steps run."""


class _Ruleset(ctypes.Structure):
    _fields_ = (
        ("handled_access_fs", ctypes.c_uint64),
        ("handled_access_net", ctypes.c_uint64),
        ("scoped", ctypes.c_uint64),
    )


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32))


@dataclass(frozen=True)
class Confinement:
    """Restrictions of a process; paths are absolute and contain no links.

    Attributes:
        closed: files, and directories below which it can neither read nor write files.
        unwritable: directories below which it can read files alone.
        writes: False lets it write nothing but devices and its own temporary files.
    """

    closed: tuple[str, ...] = ()
    unwritable: tuple[str, ...] = ()
    writes: bool = True

    @classmethod
    def of_candidate(cls, *closed: Path, writes: bool = True) -> "Confinement":
        """Return that of a process that runs an integration, which changes nothing that later processes run or trust.

        It cannot read omni-kit's configuration and the files of a runner of jobs, and cannot write omni-kit's cache and
        code, installed packages, and the user's settings.

        Where the system cannot confine, it is empty.

        Args:
            closed: further directories that it must not see.
            writes: see `Confinement`.
        """
        if not can_confine():
            return cls()
        own_key()  # so that nobody else makes it
        config, cache = (_made(path) for path in (config_directory(), cache_directory()))
        kept = {path.resolve() for path in (*cache, *_own_code(), *_environment())}
        outermost = sorted(path for path in kept if not kept.intersection(path.parents))
        unseen = tuple(str(path.resolve()) for path in (*closed, *config, *_of_runner()))
        return cls(unseen, tuple(map(str, outermost)), writes)

    def reachable(self, *, write: bool) -> list[Path]:
        """Return the places below which it can read, or also write, as they are now."""
        everything = _rights(_version())
        return [place for place, rights in self.grants(everything) if rights == everything or not write]

    def grants(self, everything: int) -> Iterator[tuple[Path, int]]:
        """Yield the places next to the protected ones, with the rights that it keeps below them."""
        protected = {Path(path) for path in (*self.closed, *self.unwritable)}
        chain = {parent for path in protected for parent in path.parents}
        own = everything if self.writes else everything & _READ_FILE
        yield from self._below(Path("/"), own, chain) if protected else iter([(Path("/"), own)])
        if not self.writes:
            yield _DEVICES, everything

    def _below(self, directory: Path, rights: int, chain: set[Path]) -> Iterator[tuple[Path, int]]:
        for entry in _entries(directory):
            if str(entry) in self.closed:
                continue
            own = rights & _READ_FILE if str(entry) in self.unwritable else rights
            if entry in chain:
                yield from self._below(entry, own, chain)
            else:
                yield entry, own


def confine(limits: Confinement) -> bool:
    """Take from this process, and from all that it starts, what `limits` says.

    It can no longer send signals to processes that are not confined as it is (Linux 6.12). To be called before another
    thread is there: a thread keeps what it has.

    Returns:
        False where the system cannot do it; then nothing has changed.
    """
    if not can_confine():
        return False
    version = _version()
    rights = _rights(version) | (0 if limits.writes else _MAKE)
    attributes = _Ruleset(rights, 0, _SCOPE_SIGNALS if version >= _SCOPES_SINCE else 0)
    size = ctypes.sizeof(attributes) if version >= _SCOPES_SINCE else ctypes.sizeof(ctypes.c_uint64)
    ruleset = _call(_CREATE_RULESET, ctypes.byref(attributes), size, 0)
    if ruleset < 0:
        return False
    for place, granted in limits.grants(rights):
        _allow(ruleset, place, granted)
    if not limits.writes:
        _allow(ruleset, Path(tempfile.gettempdir()), rights)
    done = _libc().prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0) == 0 and _call(_RESTRICT_SELF, ruleset, 0) == 0
    os.close(ruleset)
    return done


def can_confine() -> bool:
    """Return whether this system can take rights from a process."""
    return sys.platform == "linux" and _version() > 0


def _made(path: Path) -> list[Path]:
    """Return a directory, made so that nobody else makes it; nothing if it cannot be made."""
    with suppress(OSError):
        path.mkdir(parents=True, exist_ok=True)
    return [path] if path.is_dir() else []


def _of_runner() -> list[Path]:
    return [Path(value) for name, value in os.environ.items() if name.startswith(RUNNER) and is_file(Path(value))]


def _own_code() -> list[Path]:
    rules = importlib.util.find_spec("omni_checkers")
    own = [omni_kit.__file__, rules.origin if rules is not None else None]
    return [Path(file).parents[1] for file in own if file is not None]


def _environment() -> Iterator[Path]:
    """Yield what later processes of the user run or are configured by: installed packages, and settings in the home."""
    home = Path.home()
    installed = [sys.prefix, sys.base_prefix, site.getuserbase(), *sysconfig.get_paths().values()]
    settings = [path for path in _entries(home) if path.name.startswith(".") and path.is_file()]
    scratch = Path(tempfile.gettempdir()).resolve()
    for path in (*map(Path, installed), home / ".config", *settings):
        if path.exists() and not scratch.is_relative_to(path.resolve()):
            yield path


def _entries(directory: Path) -> list[Path]:
    try:
        return sorted(directory / entry.name for entry in os.scandir(directory) if not entry.is_symlink())
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
    return _READ_FILE | _WRITE_FILE | _REPLACE | refer | (_TRUNCATE if version >= _TRUNCATE_SINCE else 0)


def _version() -> int:
    """Return that of what the kernel understands; not positive where it understands none of it."""
    return _call(_CREATE_RULESET, None, 0, _VERSION)


def _call(number: int, *arguments: Any) -> int:
    return int(_libc().syscall(ctypes.c_long(number), *arguments))


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
