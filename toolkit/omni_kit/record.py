"""The record of an integration: its source and the files that were written, for rendering again and updating."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import cast

import tomlkit

from omni_kit import __version__
from omni_kit.documents import read_json, read_toml
from omni_kit.errors import BadInput, reason
from omni_kit.files import is_file, write_atomic

ANSWERS = ".omni-kit.toml"
BASE = ".omni-kit.base.json"
TEMPLATE_VERSION = 1


@dataclass(frozen=True)
class Answers:
    """The answers of one scaffold, and the hashes of the files that it wrote."""

    answers: Mapping[str, str]
    files: Mapping[str, str]


def dump_answers(answers: Mapping[str, str], files: Mapping[str, str]) -> str:
    """Return the text of `.omni-kit.toml`: `files` are path -> text."""
    digests = {path: digest(text) for path, text in sorted(files.items())}
    return _answers_text(__version__, TEMPLATE_VERSION, dict(answers), digests)


def _answers_text(version: str, template_version: int, answers: dict[str, str], digests: dict[str, str]) -> str:
    document = tomlkit.document()
    document.add(tomlkit.comment("Written by omni-kit new-model; read by omni-kit update."))
    document["omni_kit"] = version
    document["template_version"] = template_version
    document["answers"] = answers
    document["files"] = digests
    return tomlkit.dumps(document)


def is_written(name: str, text: str) -> bool:
    """Return whether a record is as this package writes it, of any version: any other is a person's.

    Args:
        name: `.omni-kit.toml` or `.omni-kit.base.json`.
    """
    try:
        if name == BASE:
            return dump_base(read_json(text)) == text
        said = read_toml(text)
        return _answers_text(*(said[key] for key in ("omni_kit", "template_version", "answers", "files"))) == text
    except (ValueError, KeyError, TypeError, AttributeError):
        return False


def load_answers(path: Path) -> Answers:
    """Read `.omni-kit.toml`; return empty answers if there is none.

    Raises:
        BadInput: it is there and cannot be read.
    """
    if not path.is_file():
        return Answers({}, {})
    try:
        document = read_toml(path.read_text(encoding="utf-8"))
        return Answers(_texts(document, "answers"), _texts(document, "files"))
    except (OSError, ValueError) as error:
        raise BadInput(f"cannot read {path}: {reason(error)}", "restore it, or delete it and pass --force") from error


def record_version(folder: Path, library: str, version: str) -> bool:
    """Write the version of a library into the record of an integration that was made from another one.

    Returns:
        Whether the record changed; without one, or with one that names no version of the library, nothing does.
    """
    path = folder / ANSWERS
    if load_answers(path).answers.get(library, version) == version:
        return False
    document = tomlkit.parse(path.read_text(encoding="utf-8"))
    cast(dict[str, str], document["answers"])[library] = version
    write_atomic(path, tomlkit.dumps(document))
    return True


def dump_base(files: Mapping[str, str]) -> str:
    """Return the text of `.omni-kit.base.json`: the written files, path -> text, which an update merges against."""
    return json.dumps(dict(sorted(files.items())), indent=1, ensure_ascii=False) + "\n"


def load_base(path: Path, answers: Answers) -> Mapping[str, str]:
    """Return the files that an earlier run wrote, path -> text, without texts whose recorded hash differs."""
    try:
        texts = read_json(path.read_text(encoding="utf-8") if is_file(path) else "")
    except (OSError, ValueError):
        return {}
    if not isinstance(texts, dict):
        return {}
    return {
        name: text
        for name, text in texts.items()
        if isinstance(text, str) and _encodable(text) and answers.files.get(name) == digest(text)
    }


def _encodable(text: str) -> bool:
    """JSON can hold half a surrogate pair, which no file can."""
    return not any("\ud800" <= letter <= "\udfff" for letter in text)


def _texts(document: Mapping[str, object], table: str) -> dict[str, str]:
    """Return a table whose values are texts.

    Raises:
        ValueError: it has another shape.
    """
    found = document.get(table, {})
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise ValueError(f"[{table}] must contain only strings")
    return found


def digest(text: str) -> str:
    """Return the hash by which a written file is recognised later."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()[:16]


def root_of(directory: Path, record: Answers) -> Path:
    """Return the directory that recorded paths are relative to: `directory` without the longest recorded folder.

    Raises:
        BadInput: the directory is not where the record says.
    """
    paths = [PurePosixPath(path) for path in record.files]
    folders = {path.parent.parts for path in paths if not path.is_absolute()}
    ending = [parts for parts in folders if parts and directory.parts[-len(parts) :] == parts]
    if not ending:
        raise BadInput(f"{directory} is not the directory that {ANSWERS} records", "move it back, or rename it")
    return directory.parents[len(max(ending, key=len)) - 1]
