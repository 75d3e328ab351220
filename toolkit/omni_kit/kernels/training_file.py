"""Writes chosen kernels into a training YAML; a person's settings and comments stay unchanged."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from omni_kit.documents import DocumentError, read_yaml, yaml_scalar
from omni_kit.errors import BadInput
from omni_kit.files import write_atomic

_STEP = "  "
Setting = tuple[Sequence[str], Mapping[str, Any]]
"""The keys that lead to settings, and the settings."""


def block(settings: Iterable[Setting]) -> str:
    """Return the settings as they are pasted into a file that has none."""
    return merged_all("", settings)


def check_training_file(file: Path) -> None:
    """Say beforehand whether settings can be put there.

    Raises:
        BadInput: it is not a file, or no YAML, or cannot be written.
    """
    if file.is_dir():
        raise BadInput(f"{file} is a directory", "pass the name of a YAML file")
    if not file.resolve().parent.is_dir():
        raise BadInput(f"{file} cannot be written: {file.parent} is not a directory", "make it first")
    merged(_read(file), (), {}, str(file))


def merge_file(file: Path, settings: Iterable[Setting]) -> None:
    """Set the settings in a file, which is made if there is none; whole or not at all.

    Raises:
        BadInput: the file is not valid YAML, or the parent of a setting is not a mapping.
    """
    write_atomic(file, merged_all(_read(file), settings, str(file)))


def merged_all(text: str, settings: Iterable[Setting], name: str = "the file") -> str:
    """Return the text of a file with settings in several places.

    Raises:
        BadInput: as `merged`.
    """
    for place, chosen in settings:
        text = merged(text, place, chosen, name)
    return text


def merged(text: str, place: Sequence[str], chosen: Mapping[str, Any], name: str = "the file") -> str:
    """Return the text of a file with these settings.

    Raises:
        BadInput: it is not a YAML mapping, or something else stands in that place.
    """
    try:
        before = read_yaml(text)
    except DocumentError as error:
        raise BadInput(f"{name} is not YAML: {str(error)[:200]}", "fix it first") from error
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    if before is not None and not isinstance(before, dict):
        raise BadInput(f"{name} is not a YAML mapping", "pass a training file")
    if not chosen:
        return text
    after = _spliced(text, root, place, chosen)
    try:
        right = read_yaml(after) == _expected(before or {}, place, chosen)
    except DocumentError:
        right = False
    if not right:
        where = ".".join(place)
        raise BadInput(f"{name} holds {where} in an unsupported form", "write it as an indented block")
    return after


def _read(file: Path) -> str:
    try:
        if file.exists() and not file.is_file():
            raise BadInput(f"{file} is not a regular file", "pass a training file")
        return file.read_text(encoding="utf-8") if file.exists() else ""
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{file} cannot be read: {error}", "pass a YAML file") from error


def _expected(before: Mapping[str, Any], place: Sequence[str], chosen: Mapping[str, Any]) -> dict[str, Any]:
    if not place:
        return {**before, **chosen}
    inner = before.get(place[0])
    return {**before, place[0]: _expected(inner if isinstance(inner, dict) else {}, place[1:], chosen)}


def _spliced(text: str, node: Any, place: Sequence[str], chosen: Mapping[str, Any]) -> str:
    """Goes down as far as the place is there, and writes what is missing in front of what is there."""
    if node is None:
        return text + ("" if not text or text.endswith("\n") else "\n") + _nested(place, chosen, "")
    if not place:
        return _set_all(text, node, chosen)
    inner = next((value for key, value in node.value if key.value == place[0]), None)
    if isinstance(inner, yaml.MappingNode) and inner.value and not inner.flow_style:
        return _spliced(text, inner, place[1:], chosen)
    if inner is None:
        return _before(text, node, _nested(place, chosen, " " * node.start_mark.column))
    pad = " " * (node.start_mark.column + len(_STEP))
    made = "\n" + _nested(place[1:], chosen, pad).rstrip("\n")
    if inner.start_mark.index == inner.end_mark.index:  # nothing stands there
        return text[: inner.start_mark.index].rstrip(" ") + made + text[inner.start_mark.index :]
    kept = yaml.safe_load(text[inner.start_mark.index : inner.end_mark.index])
    if kept is not None and (not isinstance(kept, dict) or len(place) > 1):
        return text  # which is seen to be wrong
    made = "\n" + _nested((), {**(kept or {}), **chosen}, pad).rstrip("\n")
    return text[: inner.start_mark.index].rstrip(" ") + made + text[inner.end_mark.index :]


def _set_all(text: str, node: Any, chosen: Mapping[str, Any]) -> str:
    """Replace the values that are there, from the last to the first, and put the others in front of them."""
    there = [(key.value, value) for key, value in node.value if key.value in chosen]
    new = {name: kernel for name, kernel in chosen.items() if name not in dict(there)}
    for name, value in sorted(there, key=lambda one: -one[1].start_mark.index):
        own = yaml_scalar(chosen[name])
        text = text[: value.start_mark.index] + own + text[value.end_mark.index :]
    return _before(text, node, _nested((), new, " " * node.start_mark.column))


def _before(text: str, node: Any, made: str) -> str:
    """Whole lines in front of a block."""
    start = node.start_mark.index - node.start_mark.column
    return text[:start] + made + text[start:]


def _nested(place: Sequence[str], chosen: Mapping[str, Any], pad: str) -> str:
    if place:
        return f"{pad}{yaml_scalar(place[0])}:\n" + _nested(place[1:], chosen, pad + _STEP)
    return "".join(f"{pad}{yaml_scalar(name)}: {yaml_scalar(kernel)}\n" for name, kernel in chosen.items())
