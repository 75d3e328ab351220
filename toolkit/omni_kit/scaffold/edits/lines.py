"""Lines of a file: where a new one belongs among sorted ones."""

from collections.abc import Sequence


def sorted_place(names: Sequence[str], name: str) -> int:
    """Return where a name belongs in the longest sorted run of a list: real lists have several runs.

    Case counts only between names that are else alike.
    """
    keys = [(one.lower(), one) for one in names]
    starts = [0, *(at for at in range(1, len(keys)) if keys[at] < keys[at - 1])]
    parts = [*zip(starts, [*starts[1:], len(keys)], strict=True)]
    start, end = max(parts, key=lambda part: part[1] - part[0])
    key = (name.lower(), name)
    return next((at for at in range(start, end) if keys[at] > key), end)


def indent_of(line: str) -> str:
    """Return the spaces that a line begins with."""
    return line[: len(line) - len(line.lstrip())]


def inserted(text: str, at: int, new: Sequence[str]) -> str:
    """Return the text with lines before the line number `at`, which counts from 0."""
    lines = text.split("\n")
    return "\n".join([*lines[:at], *new, *lines[at:]])
