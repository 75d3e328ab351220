"""Skills in an agent's folder: add, update and remove them without losing edited files.

Next to each added skill is a record of what was written: file -> digest.
"""

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from omni_kit import __version__
from omni_kit.documents import read_json
from omni_kit.errors import BadInput
from omni_kit.files import inside, plain_name, write_atomic
from omni_kit.skillpack.skill import Skill, load_skills

RECORD = ".omni-kit.json"
_SKIPPED = {"__pycache__", "evals"}


class Agent(StrEnum):
    """Agents that load skills from a folder."""

    claude = "claude"
    codex = "codex"
    cursor = "cursor"
    gemini = "gemini"
    agents = "agents"


@dataclass(frozen=True)
class Place:
    """A folder of installed skills.

    Attributes:
        project: in the working directory; else in the user's home.
        folder: this folder, whatever the agent.
    """

    agent: Agent = Agent.agents
    project: bool = True
    folder: Path | None = None

    @property
    def path(self) -> Path:
        """The folder that holds one folder a skill."""
        root = Path.cwd() if self.project else Path.home()
        return self.folder if self.folder is not None else root / f".{self.agent.value}" / "skills"


@dataclass(frozen=True)
class Change:
    """The change of one file.

    Attributes:
        action: created, updated, unchanged, removed; kept where a person changed it; conflict where something that was
            not added by us is in the way.
    """

    path: Path
    skill: str
    action: str


def add(place: Place, names: Sequence[str]) -> list[Change]:
    """Put skills into a folder; all of the pack without names.

    Raises:
        BadInput: there is no such skill, or the place cannot be written to.
    """
    return [change for skill in _chosen(names) for change in _write(skill, _folder(place, skill.name))]


def update(place: Place, names: Sequence[str]) -> list[Change]:
    """Bring the skills of a folder that were added to this version; those that the pack has no more stay.

    Raises:
        BadInput: none was added there, there is no such skill, or the place cannot be written to.
    """
    ours = {skill.name: skill for skill in load_skills()}
    added = [folder for folder in _added(place, names) if folder.name in ours]
    return [change for folder in added for change in _write(ours[folder.name], folder)]


def remove(place: Place, names: Sequence[str]) -> list[Change]:
    """Remove installed skills from a folder; keep files that a person edited or added.

    Raises:
        BadInput: none was added there.
    """
    return [change for folder in _added(place, names) for change in _removed(folder)]


def _chosen(names: Sequence[str]) -> list[Skill]:
    skills = {skill.name: skill for skill in load_skills()}
    if unknown := [name for name in names if name not in skills]:
        raise BadInput(f"no skill named '{unknown[0]}'", f"one of {', '.join(skills)}")
    return [skills[name] for name in dict.fromkeys(names or skills)]


def _added(place: Place, names: Sequence[str]) -> list[Path]:
    """Return the folders with a record."""
    if missing := [name for name in names if not (_folder(place, plain_name(name, "the skill")) / RECORD).is_file()]:
        raise BadInput(f"{place.path} has no skill '{missing[0]}' that was added", "see `omni-kit skills add --help`")
    here = (file.parent for file in place.path.glob(f"*/{RECORD}") if not file.parent.is_symlink())
    found = [place.path / name for name in names] or sorted(here)
    if not found:
        raise BadInput(
            f"{place.path} has no skill that was added", "pass the --agent, --user or --dir used when it was added"
        )
    return found


def _folder(place: Place, name: str) -> Path:
    """Return the folder of a skill.

    Raises:
        BadInput: a link leads out of the place.
    """
    return inside(place.path, name)


def files_of(skill: Skill) -> dict[str, str]:
    """Return the files of a skill: path in its folder -> text."""
    root = skill.path.parent
    found = (path for path in sorted(root.rglob("*")) if path.is_file())
    parts = ((path.relative_to(root), path) for path in found)
    return {r.as_posix(): path.read_text(encoding="utf-8") for r, path in parts if not _SKIPPED & set(r.parts)}


def _write(skill: Skill, folder: Path) -> Iterator[Change]:
    """Write what is new or as it was written last; what fits neither is a person's.

    Where something was there before us nothing is written at all.
    """
    record, files = _record(folder), files_of(skill)
    actions = {name: _action(inside(folder, name), text, record.get(name)) for name, text in files.items()}
    if not record and os.path.lexists(folder / RECORD):  # that is not one of ours
        actions[RECORD] = "conflict"
    if "conflict" in actions.values():
        yield from (
            Change(folder / name, skill.name, "conflict") for name, what in actions.items() if what == "conflict"
        )
        return
    written = dict[str, str]()
    for name, text in files.items():
        if actions[name] in ("created", "updated"):
            write_atomic(folder / name, text)
        written[name] = record[name] if actions[name] == "kept" else _digest(text)
        yield Change(folder / name, skill.name, actions[name])
    for name in sorted(record.keys() - files.keys()):
        yield _unlink(folder, name, record[name], written)
    said = {"omni_kit": __version__, "files": written}
    write_atomic(folder / RECORD, json.dumps(said, indent=2, sort_keys=True) + "\n")


def _action(path: Path, text: str, digest: str | None) -> str:
    """Return the action for one file; a link belongs to its user, wherever it leads."""
    if not os.path.lexists(path):
        return "created"
    have = _digest_of(path)
    if have == _digest(text):
        return "unchanged"
    if digest is None:
        return "conflict"
    return "updated" if have == digest and not path.is_symlink() else "kept"


def _removed(folder: Path) -> Iterator[Change]:
    left = dict[str, str]()
    record = _record(folder)
    for relative, digest in record.items():
        yield _unlink(folder, relative, digest, left)
    (folder / RECORD).unlink()
    ours = {parent for relative in [*record, RECORD] for parent in Path(relative).parents}
    for parent in sorted(ours, reverse=True):  # those in others first
        with suppress(OSError):  # something is in it
            (folder / parent).rmdir()


def _unlink(folder: Path, relative: str, digest: str, left: dict[str, str]) -> Change:
    """Remove a file that is as it was written; anything else is left, and stays in the record."""
    path = inside(folder, relative)
    if os.path.lexists(path):
        if path.is_symlink() or not path.is_file() or _digest_of(path) != digest:
            left[relative] = digest
            return Change(path, folder.name, "kept")
        path.unlink()
    return Change(path, folder.name, "removed")


def _record(folder: Path) -> dict[str, str]:
    """Return the record of the files written into a folder; empty if it is missing or unreadable."""
    try:
        said = read_json((folder / RECORD).read_text(encoding="utf-8"))
        return {str(key): str(value) for key, value in said["files"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def _digest_of(path: Path) -> str:
    try:
        return _digest(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        return ""


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
