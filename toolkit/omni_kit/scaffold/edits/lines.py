"""Lines of a file: where a new one belongs among sorted ones."""

from collections.abc import Sequence


def sorted_place(names: Sequence[str], name: str) -> int:
    """Before the first that comes after it; case counts only between names that are else alike."""
    key = (name.lower(), name)
    return next((index for index, one in enumerate(names) if (one.lower(), one) > key), len(names))


def indent_of(line: str) -> str:
    """The spaces that a line begins with."""
    return line[: len(line) - len(line.lstrip())]


def inserted(text: str, at: int, new: Sequence[str]) -> str:
    """The text with lines before the line number `at`, which counts from 0."""
    lines = text.split("\n")
    return "\n".join([*lines[:at], *new, *lines[at:]])
