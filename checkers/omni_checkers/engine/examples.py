"""Examples of rules, made from files that are right."""

from collections.abc import Mapping


def changed(files: Mapping[str, str], file: str, *pairs: tuple[str, str]) -> dict[str, str]:
    """Return an example that changes one file, first text by second.

    Raises:
        ValueError: the file has no such text, and the example would change nothing.
    """
    text = files[file]
    for before, after in pairs:
        if before not in text:
            raise ValueError(f"{file} has no {before!r}")
        text = text.replace(before, after)
    return {file: text}
