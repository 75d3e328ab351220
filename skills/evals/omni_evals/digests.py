"""Digests that show which files of a project are unchanged since the agent received it."""

import fnmatch
import hashlib
import json
from pathlib import Path

_PASSING = ("*/__pycache__/*", "*.pyc", ".git/*")


def digests(root: Path) -> dict[str, str]:
    """Relative path -> SHA-256, of all files but those that Python and git make by themselves."""
    files = {file.relative_to(root).as_posix(): file for file in sorted(root.rglob("*")) if file.is_file()}
    return {
        name: hashlib.sha256(file.read_bytes()).hexdigest() for name, file in files.items() if not _fits(name, _PASSING)
    }


def remember(root: Path, state: Path) -> None:
    """Writes the digests of a project that is handed out."""
    state.mkdir(parents=True, exist_ok=True)
    (state / "digests.json").write_text(json.dumps(digests(root), indent=1), encoding="utf-8")


def changed(root: Path, state: Path, but: tuple[str, ...] = ()) -> list[str]:
    """Files that were handed out and are now others or gone, without those that fit a pattern of `but`."""
    before: dict[str, str] = json.loads((state / "digests.json").read_text(encoding="utf-8"))
    now = digests(root)
    return [name for name, digest in before.items() if now.get(name) != digest and not _fits(name, but)]


def _fits(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch.fnmatch(name, pattern) for pattern in patterns)
