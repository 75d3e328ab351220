"""Edits of lists between commas: arguments, elements, entries and parameters."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from omni_kit.patchgen.spans import Edit, Source

_COMMA = re.compile(r"\s*,?")


@dataclass(frozen=True)
class Item:
    """An element: its key, and its place in the text."""

    key: str
    dump: str
    start: int
    end: int
    node: Any = None


def removal(source: Source, items: Sequence[Item], gone: set[int]) -> list[Edit]:
    """Edits that take elements out, each with a comma; a run of neighbours is one edit."""
    edits = []
    for first in sorted(gone):
        if first - 1 in gone:
            continue
        last = first
        while last + 1 in gone:
            last += 1
        if last + 1 < len(items):
            edits.append(Edit(items[first].start, items[last + 1].start, ""))
        elif first:
            edits.append(Edit(items[first - 1].end, items[last].end, ""))
        else:
            comma = _COMMA.match(source.text, items[last].end)
            edits.append(Edit(items[first].start, comma.end() if comma else items[last].end, ""))
    return edits


def insertion(source: Source, items: Sequence[Item], after: int, texts: Sequence[str], empty_at: int) -> Edit:
    """Return the edit that puts elements behind the one at index `after`, or first at -1.

    Args:
        empty_at: where the first element goes if there is none yet.
    """
    if not items:
        return Edit(empty_at, empty_at, ", ".join(texts))
    following = after + 1
    if following < len(items):
        at = items[following].start
        return Edit(at, at, "".join(f"{text},{_gap(source, at)}" for text in texts))
    at = items[after].end
    return Edit(at, at, "".join(f",{_gap(source, items[after].start)}{text}" for text in texts))


def _gap(source: Source, at: int) -> str:
    """Return the text before an element that begins a line: a line end and its indentation; else a blank."""
    line = source.text.rfind("\n", 0, at) + 1
    lead = source.text[line:at]
    return f"\n{lead}" if line and not lead.strip() else " "
