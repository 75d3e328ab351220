"""Compares a scaffold with what is on disk, and writes it whole or not at all."""

import difflib
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from omni_kit.files import inside, write_atomic

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
        """The change as a unified diff; empty when there is none."""
        lines = difflib.unified_diff(
            (self.old or "").splitlines(), self.new.splitlines(), f"a/{self.path}", f"b/{self.path}", lineterm=""
        )
        return "\n".join(lines)


def compare(
    root: Path, files: Mapping[str, str], edited: Mapping[str, str], known: Mapping[str, str], force: bool
) -> list[FileChange]:
    """What writing would do to each file.

    Args:
        files: path -> text of files that the scaffold owns.
        edited: path -> text of the framework's files after the edits.
        known: path -> hash of what an earlier run wrote: such a file may be rewritten if nobody changed it since.
        force: rewrite files that somebody changed.

    Raises:
        BadInput: a path lies outside `root`.
    """
    changes = []
    for path, text in files.items():
        old = _read(inside(root, path))
        changes.append(FileChange(path, _action(path, old, text, known, force), old, text))
    for path, text in edited.items():
        old = _read(inside(root, path))
        changes.append(FileChange(path, "unchanged" if old == text else "update", old, text))
    return changes


def write(root: Path, changes: Sequence[FileChange]) -> None:
    """Writes what is to be created or updated; the caller has made sure that there is no conflict."""
    for change in changes:
        if change.action in {"create", "update"}:
            write_atomic(root / change.path, change.new)


def digest(text: str) -> str:
    """The hash by which a written file is recognised later."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()[:16]


def _action(path: str, old: str | None, new: str, known: Mapping[str, str], force: bool) -> Action:
    if old is None:
        return "create"
    if old == new:
        return "unchanged"
    return "update" if force or known.get(path) == digest(old) else "conflict"


def _read(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.is_file() else None
