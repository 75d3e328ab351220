"""Compares a scaffold with the files on disk, and writes it whole or not at all."""

import difflib
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from omni_kit.errors import BadInput, reason
from omni_kit.files import inside, write_atomic
from omni_kit.record import digest

Action = Literal["create", "update", "unchanged", "conflict"]


@dataclass(frozen=True)
class FileChange:
    """One file of a scaffold against the disk.

    Attributes:
        path: relative to the directory that is written to.
        old: what is there; None when nothing is.
    """

    path: str
    action: Action
    old: str | None
    new: str

    def diff(self) -> str:
        """Return the change as a unified diff; empty when there is none."""
        lines = difflib.unified_diff(
            (self.old or "").splitlines(), self.new.splitlines(), f"a/{self.path}", f"b/{self.path}", lineterm=""
        )
        return "\n".join(lines)


def compare(
    root: Path, files: Mapping[str, str], edited: Mapping[str, str], known: Mapping[str, str], force: bool
) -> list[FileChange]:
    """Return the change that writing would make to each file.

    Args:
        files: path -> text of files that the scaffold owns.
        edited: path -> text of the framework's files after the edits.
        known: path -> hash of what an earlier run wrote: such a file may be rewritten if nobody changed it since.
        force: rewrite files that somebody changed.

    Raises:
        BadInput: a path lies outside `root`, or what is there is no text file.
    """
    changes = []
    for path, text in files.items():
        if not force and leads_nowhere(inside(root, path)):
            changes.append(FileChange(path, "conflict", None, text))
            continue
        old = read_existing(root, path)
        changes.append(FileChange(path, _action(path, old, text, known, force), old, text))
    for path, text in edited.items():
        old = read_existing(root, path)
        changes.append(FileChange(path, "unchanged" if old == text else "update", old, text))
    return changes


def write(root: Path, changes: Sequence[FileChange]) -> None:
    """Write what differs from the disk, whole or not at all: when one file cannot be written, the others go back.

    Raises:
        BadInput: a file cannot be written.
    """
    undo: list[Callable[[], None]] = []
    try:
        for change in changes:
            if change.new == change.old:
                continue
            path = root / change.path
            undo += [partial(_remove_directory, folder) for folder in _absent(path.parent)]
            undo.append(partial(_put_back, path, change.old))
            write_atomic(path, change.new)
    except BaseException:
        for step in reversed(undo):
            step()
        raise


def _absent(folder: Path) -> list[Path]:
    """Return the directories that have to be made, outermost first."""
    return [place for place in reversed((folder, *folder.parents)) if not os.path.lexists(place)]


def _remove_directory(folder: Path) -> None:
    with suppress(OSError):  # not made in the end, or somebody else put something there
        folder.rmdir()


def _put_back(path: Path, old: str | None) -> None:
    with suppress(OSError, BadInput):
        if old is None:
            path.unlink(missing_ok=True)
        elif path.read_text(encoding="utf-8") != old:
            write_atomic(path, old)


def _action(path: str, old: str | None, new: str, known: Mapping[str, str], force: bool) -> Action:
    if old is None:
        return "create"
    if old == new:
        return "unchanged"
    return "update" if force or known.get(path) == digest(old) else "conflict"


def leads_nowhere(path: Path) -> bool:
    """Return whether the path is a dangling link: it belongs to somebody, though it has no content."""
    return path.is_symlink() and not path.exists()


def read_existing(root: Path, relative: str) -> str | None:
    """Return the text of a file that may be replaced; None if nothing is.

    Raises:
        BadInput: it lies outside `root`, no file can be there, or what is there is no text.
    """
    path = inside(root, relative)
    for folder in path.parents:
        if folder.exists() and not folder.is_dir():
            raise BadInput(f"{folder} is a file, but {relative} would be inside it", "move it, or choose another name")
    if path.is_dir():
        raise BadInput(f"{path} is a directory where a file is needed", "move it, or choose another name")
    try:
        if path.exists() and not path.is_file():
            raise BadInput(f"{path} is not a regular file", "move it, or choose another name")
        return path.read_text(encoding="utf-8") if path.exists() else None
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"cannot read {path}: {reason(error)}", "move it, or choose another name") from error
