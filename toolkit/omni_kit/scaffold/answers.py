"""`.omni-kit.toml`: what an integration was made from, so that it can be made again and updated."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import tomlkit
from tomlkit.exceptions import TOMLKitError

from omni_kit import __version__
from omni_kit.errors import BadInput
from omni_kit.scaffold.write import digest

ANSWERS = ".omni-kit.toml"
TEMPLATE_VERSION = 1


@dataclass(frozen=True)
class Answers:
    """The answers of one scaffold, and the hashes of the files that it wrote."""

    answers: Mapping[str, str]
    files: Mapping[str, str]


def dump_answers(answers: Mapping[str, str], files: Mapping[str, str]) -> str:
    """The text of `.omni-kit.toml`: `files` are path -> text."""
    document = tomlkit.document()
    document.add(tomlkit.comment("Written by omni-kit new-model; read by omni-kit update."))
    document["omni_kit"] = __version__
    document["template_version"] = TEMPLATE_VERSION
    document["answers"] = dict(answers)
    document["files"] = {path: digest(text) for path, text in sorted(files.items())}
    return tomlkit.dumps(document)


def load_answers(path: Path) -> Answers:
    """Reads `.omni-kit.toml`; empty answers when there is none.

    Raises:
        BadInput: it is there and cannot be read.
    """
    if not path.is_file():
        return Answers({}, {})
    try:
        document = tomlkit.parse(path.read_text(encoding="utf-8")).unwrap()
        return Answers(dict(document.get("answers", {})), dict(document.get("files", {})))
    except (OSError, UnicodeDecodeError, TOMLKitError, ValueError, TypeError) as error:
        raise BadInput(f"cannot read {path}: {error}", "restore it, or delete it and pass --force") from error
