"""Exact positions in a source text: lines, offsets, splices, and re-indenting that keeps string values."""

import ast
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any


@dataclass(frozen=True, order=True)
class Edit:
    """`text` instead of the characters from `start` up to `end`."""

    start: int
    end: int
    text: str


class Source:
    """A text with the offsets of its lines; `ast` positions (1-based line, utf-8 column) become character offsets."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def lines(self) -> list[str]:
        """The lines with their ends."""
        return re.split(r"(?<=\n)", self.text)

    @cached_property
    def starts(self) -> list[int]:
        """The offset in characters at which each line begins, and that of the end."""
        starts, offset = [0], 0
        for line in self.lines:
            offset += len(line)
            starts.append(offset)
        return starts

    def line_start(self, line: int) -> int:
        """Return the offset in characters of a line, counted from 1; the end of the text for any line behind it."""
        return self.starts[min(line - 1, len(self.starts) - 1)]

    def offset(self, line: int, column: int) -> int:
        """Return the offset in characters of a place that ast names: line from 1, column in UTF-8 bytes."""
        content = self.lines[line - 1]
        return self.line_start(line) + (column if content.isascii() else len(content.encode()[:column].decode()))

    def start_of(self, node: ast.AST) -> int:
        """Return the offset in characters at which a node begins."""
        position: Any = node
        return self.offset(position.lineno, position.col_offset)

    def end_of(self, node: ast.AST) -> int:
        """Return the offset in characters behind a node."""
        position: Any = node
        return self.offset(position.end_lineno, position.end_col_offset)

    def of(self, node: ast.AST) -> str:
        """Return the text of a node."""
        return self.text[self.start_of(node) : self.end_of(node)]

    def rows(self, first: int, last: int) -> str:
        """Return the text of the lines first..last, both included."""
        return self.text[self.line_start(first) : self.line_start(last + 1)]


def splice(text: str, edits: Iterable[Edit]) -> str:
    """`text` with all edits applied; an insertion at the start of a replaced span comes before it.

    Raises:
        ValueError: two edits overlap.
    """
    pieces, position = [], 0
    for edit in sorted(edits, key=lambda e: (e.start, e.end)):
        if edit.start < position:
            raise ValueError(f"two changes overlap at offset {edit.start}")
        pieces += [text[position : edit.start], edit.text]
        position = edit.end
    return "".join([*pieces, text[position:]])


def first_line(node: ast.stmt) -> int:
    """Return the line where a definition begins, decorators included."""
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(decorator.lineno for decorator in decorators)])


def last_line(source: Source, node: ast.stmt) -> int:
    """Return the line where a definition ends, with the comments behind its last statement that are indented as its
    body.
    """
    end = last = node.end_lineno or node.lineno
    for line in source.lines[end:]:
        end += 1
        if line.strip():
            if not line.lstrip().startswith("#") or len(line) - len(line.lstrip()) <= node.col_offset:
                break
            last = end
    return last


def shift(text: str, old: int, new: int) -> str:
    """`text`, a run of whole statements indented by `old`, indented by `new` instead.

    Lines that begin inside a string stay as they are: shifting them would change the string's value.
    """
    if old == new:
        return text
    inside = _lines_inside_strings(text, old)
    shifted = []
    for number, line in enumerate(re.split(r"(?<=\n)", text), start=1):
        if number in inside or not line.strip():
            shifted.append(line)
        else:
            shifted.append(" " * new + (line[old:] if line[:old].isspace() or not old else line.lstrip(" \t")))
    return "".join(shifted)


def _lines_inside_strings(text: str, indent: int) -> set[int]:
    if '"""' not in text and "'''" not in text and "\\\n" not in text:
        return set()
    lead = "if 1:\n" if indent else ""
    tree = ast.parse(lead + text)
    inside: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes))):
            inside.update(range(node.lineno + 1, (node.end_lineno or node.lineno) + 1))
    return {number - 1 for number in inside} if lead else inside
