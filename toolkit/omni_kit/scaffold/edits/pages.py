"""Tables of contents in YAML, as lines: comments and order stay as they are."""

import re

from omni_kit.errors import BadInput
from omni_kit.scaffold.edits.lines import inserted, sorted_place
from omni_kit.targets.protocol import PageEntry

_LOCAL = re.compile(r"^(?P<indent> *)- local: (?P<local>\S+)\s*$")
_TITLE = re.compile(r"^ +title: (?P<title>.+?)\s*$")


def add_page(text: str, edit: PageEntry) -> str:
    """Return the text with the page among its siblings, unless it is listed.

    Raises:
        BadInput: no page has a place that begins so.
    """
    lines = text.split("\n")
    found = []
    for number, line in enumerate(lines[:-1]):
        local, title = _LOCAL.match(line), _TITLE.match(lines[number + 1])
        if local is not None and local["local"] == edit.local:
            return text
        if local is not None and title is not None and local["local"].startswith(edit.beside):
            found.append((number, local["indent"], title["title"]))
    if not found:
        raise BadInput(f"{edit.path} lists no page below {edit.beside}")
    block = _longest(found)
    place = sorted_place([title for _, _, title in block], edit.title)
    at = block[place][0] if place < len(block) else block[-1][0] + 2
    indent = block[0][1]
    return inserted(text, at, [f"{indent}- local: {edit.local}", f"{indent}  title: {edit.title}"])


def _longest(found: list[tuple[int, str, str]]) -> list[tuple[int, str, str]]:
    """Return the longest run of pages that follow each other."""
    runs: list[list[tuple[int, str, str]]] = []
    for one in found:
        if runs and one[0] == runs[-1][-1][0] + 2 and one[1] == runs[-1][-1][1]:
            runs[-1].append(one)
        else:
            runs.append([one])
    return max(runs, key=len)
