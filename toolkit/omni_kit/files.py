"""Writing files so that nothing is ever half written."""

import keyword
import os
import shutil
import tempfile
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from omni_kit.errors import BadInput

_LONGEST_NAME = 200  # bytes
_HEAD = 2000  # bytes of a page in which it says what made it


def cache_directory() -> Path:
    """Return the directory of reproducible files: `$OMNI_KIT_CACHE`, else `omni-kit` in the user's cache directory."""
    given = os.environ.get("OMNI_KIT_CACHE")
    if given:
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "omni-kit"


def config_directory() -> Path:
    """Return where what cannot be made again is kept: `omni-kit` in the user's configuration directory."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "omni-kit"


def write_atomic(path: Path, text: str) -> None:
    """Write a file in one step: readers see the old content or the new, never a part.

    Raises:
        BadInput: the place cannot be written to, or what is there is not a file: /dev/null must not become one.
    """
    try:
        if path.exists() and not path.is_file():
            raise BadInput(f"cannot write {path}: it is not a regular file", "pass another name")
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as stream:
                stream.write(text)
            os.chmod(temporary, path.stat().st_mode & 0o777 if path.exists() else 0o666 & ~_umask())
            os.replace(temporary, path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise BadInput(f"cannot write {path}: {error.strerror}", "pass another path") from error


def refuse_taken(path: Path) -> None:
    """Say beforehand whether a new directory may be written there.

    Raises:
        BadInput: something is there already; an empty directory is nothing.
    """
    if os.path.lexists(path) and (path.is_symlink() or not path.is_dir() or any(path.iterdir())):
        raise BadInput(f"{path} is there already", "pass a new directory")


@contextmanager
def whole_directory(path: Path) -> Iterator[Path]:
    """A folder next to `path` to write into; it gets that name when all is written, and goes when something fails.

    Raises:
        BadInput: something is there already, or it cannot be written.
    """
    refuse_taken(path)
    path = path.resolve()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}."))
        try:
            yield folder
            folder.chmod(0o777 & ~_umask())
            folder.rename(path)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
    except OSError as error:
        raise BadInput(f"cannot write {path}: {error.strerror or error}") from error


def check_replaceable(file: Path, command: str) -> None:
    """Say beforehand whether a page of HTML may be written there.

    Args:
        command: what makes such pages, as they say themselves: "omni-kit parity".

    Raises:
        BadInput: no file can be there, or what is there is no page of an earlier run.
    """
    if file.is_dir():
        raise BadInput(f"{file} is a directory", "pass the name of an HTML file")
    if file.exists() or file.is_symlink():
        mark = f'<meta name="generator" content="{command}">'.encode()
        try:
            with file.open("rb") as stream:
                ours = mark in stream.read(_HEAD)
        except OSError as error:
            raise BadInput(f"{file} cannot be read: {error.strerror}", "pass another name") from error
        if not ours:
            raise BadInput(f"{file} exists and is not a page of {command}", "choose another name, or remove it")
    refuse_no_folder(file)


def refuse_no_folder(file: Path) -> None:
    """Check beforehand that the directory of a file exists.

    Raises:
        BadInput: it does not, or `file` is a directory itself.
    """
    if file.is_dir():
        raise BadInput(f"{file} is a directory", "pass a file name")
    if not file.resolve().parent.is_dir():
        raise BadInput(f"{file} cannot be written: {file.parent} is not a directory", "make it first")


def plain_name(name: str, what: str) -> str:
    """Return `name` if it can be the name of one file or directory in a directory.

    Args:
        what: what it names, for the message.

    Raises:
        BadInput: it is empty, leads elsewhere, or contains what no name does.
    """
    if name in {"", ".", ".."} or any(letter in "/\\" or not letter.isprintable() for letter in name):
        raise BadInput(f"{what} {name!r} is not a valid name", "use letters, digits, hyphens and underscores")
    return name


def identifier_of(text: str) -> str:
    """Return a name for code, made of a file's or a repository's: what no identifier can have becomes an underscore."""
    usable = "".join(char if f"a{char}".isidentifier() and char != "_" else " " for char in text)
    name = "_".join(usable.split())
    return name if name.isidentifier() else f"model_{name}".rstrip("_")


def check_name(name: str) -> None:
    """Refuse what cannot name a package, or what Python reads as another name.

    Raises:
        BadInput: why.
    """
    if not name.isidentifier() or keyword.iskeyword(name):
        raise BadInput(f"{name!r} is not a Python identifier", "use letters, digits and underscores: my_model")
    if (read := unicodedata.normalize("NFKC", name)) != name:
        raise BadInput(f"Python reads {name!r} as {read!r}", f"use the name {read}")
    if name.startswith("__") and name.endswith("__"):
        raise BadInput(f"{name!r} has a special meaning in Python", "use letters, digits and underscores: my_model")
    if len(name.encode()) > _LONGEST_NAME:
        raise BadInput(f"{name[:20]!r}… is too long for a file name", f"use at most {_LONGEST_NAME} bytes")


def inside(root: Path, relative: str) -> Path:
    """`relative` below `root`.

    Raises:
        BadInput: it leads outside, through `..`, an absolute path or a link.
    """
    path = root / relative
    try:
        within = path.resolve().is_relative_to(root.resolve())
    except (OSError, RuntimeError) as error:  # a link to itself
        raise BadInput(f"{path} leads nowhere: {error}", "remove the link") from error
    if not within:
        raise BadInput(f"{relative} lies outside {root}")
    return path


def files_matching(root: Path, pattern: str) -> list[Path]:
    """Return the regular files below a directory that match a pattern of `Path.glob`, ordered, without bytecode.

    Pipes and devices are left out: what is in a directory of somebody else may have any name, and reading a pipe
    never ends.
    """
    return sorted(path for path in root.glob(pattern) if "__pycache__" not in path.parts and path.is_file())


def is_file(path: Path) -> bool:
    """Return whether there is a regular file: no directory, no pipe, no device; and a name that can be one."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current
