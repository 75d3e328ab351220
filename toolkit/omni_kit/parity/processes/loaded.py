"""Files that a process has loaded: those of its modules, and those that Python opened for it."""

import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from importlib.util import source_from_cache
from pathlib import Path

_BYTECODE = ".pyc"
# To write, or to name a place in the rules of a confined process.
_READS_NOTHING = os.O_WRONLY | getattr(os, "O_PATH", 0)
_opened: set[str] = set()


def watch() -> None:
    """Record from now on every file that Python opens for reading; forks inherit that.

    Native code that opens files by itself, and programs that the process starts, are not seen.
    """
    sys.addaudithook(_heard)


def loaded_files() -> list[str]:
    """Return the absolute paths of what this process has loaded so far, without its own temporary directory.

    Paths are those that were opened, links included. Some may not exist: what a process looked for in vain counts.
    """
    files = {_source(file) for module in [*sys.modules.values()] if isinstance(file := _file(module), str)}
    own = os.path.join(os.path.realpath(os.environ.get("TMPDIR", os.devnull)), "")
    return sorted(file for file in files | {_source(file) for file in [*_opened]} if not file.startswith(own))


def add_loaded(files: Iterable[str]) -> None:
    """Count what another process has loaded as loaded by this one, which started it."""
    _opened.update(files)


def write_loaded(file: Path) -> None:
    """Write what this process has loaded for the one that started it."""
    file.write_text("\0".join(loaded_files()), encoding="utf-8", errors="surrogateescape")


def read_loaded(file: Path) -> list[str]:
    """Return what `write_loaded` has written."""
    return file.read_text(encoding="utf-8", errors="surrogateescape").split("\0")


def _heard(event: str, arguments: tuple[object, ...]) -> None:
    if event != "open":
        return
    path, _, flags = arguments
    if not isinstance(path, (str, bytes, os.PathLike)) or (isinstance(flags, int) and flags & _READS_NOTHING):
        return
    with suppress(OSError, ValueError):
        _opened.add(os.path.abspath(os.fsdecode(path)))


def _file(module: object) -> object:
    """Return a module's file without asking the module, which may be one that loads the rest when it is asked."""
    return getattr(module, "__dict__", {}).get("__file__")


def _source(file: str) -> str:
    """Return the source of bytecode, which names it; bytecode alone stands for itself."""
    with suppress(ValueError, NotImplementedError):
        return source_from_cache(file) if file.endswith(_BYTECODE) else file
    return file
